"""Requests and answers that replicas keep: files in the workspace's own datastore, by date."""

from __future__ import annotations

from sqlalchemy import Connection

from muster import errors
from muster.server.context import Context
from muster.server.data.datastores import BUILT_IN_FOLDER
from muster.server.endpoints import records
from muster.wire.serving.collected import CollectedFile

FOLDER = "modelDataCollector"


def name_of(connection: Connection, run: str, file: CollectedFile) -> str:
    """The name of a file in the workspace store: below the endpoint and the deployment of the run."""
    mine = records.run_of(connection, run)
    if mine.deployment is None:
        raise errors.JobError(f"the run {run} is a front door, which collects nothing", "Only replicas do.")
    place = f"{mine.endpoint}/{mine.deployment}/{file.collection}/{file.date}"
    return f"{BUILT_IN_FOLDER}/{FOLDER}/{place}/{file.file_id}.jsonl"


def keep(context: Context, name: str, file: CollectedFile) -> None:
    """Write the file, or its present, longer content."""
    context.files.store.put(name, (line.encode() + b"\n" for line in file.lines))
