"""Artifacts: a run's own files, under MLflow's addresses `EXPERIMENT/RUN/artifacts/PATH`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, delete

from muster.host.files import is_safe_path
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.mlflow import run_views
from muster.server.mlflow.protocol import ABSENT, INVALID, Answer, Call, MlflowError
from muster.server.runs.views import RunFile, files_of
from muster.store.pieces import pieces_of
from muster.wire.codec import Json

SCHEME = "mlflow-artifacts:/"


@dataclass(frozen=True)
class Place:
    """The run and the path of an artifact."""

    run_id: str
    path: str

    @property
    def prefix(self) -> str:
        return f"{self.path}/" if self.path else ""


def place_of(address: str) -> Place:
    """The run and path in `EXPERIMENT/RUN/artifacts/PATH`."""
    parts = [part for part in address.split("/") if part not in ("", ".")]
    if len(parts) < 3 or parts[2] != "artifacts" or ".." in parts:
        raise MlflowError(INVALID, f"{address!r} is no address of an artifact: EXPERIMENT/RUN/artifacts/PATH")
    path = "/".join(parts[3:])
    if path and not is_safe_path(path):
        raise MlflowError(INVALID, f"Invalid artifact path {path!r}")
    return Place(parts[1], path)


def listing(context: Context, connection: Connection, place: Place, in_run: bool = False) -> list[Json]:
    """The files and folders directly below a path, with their full paths in the run or relative to that path."""
    run_views.find(connection, place.run_id)
    found: dict[str, Json] = {}
    for file in files_of(context, connection, place.run_id, with_checkpoints=False):
        if not file.path.startswith(place.prefix):
            continue
        inner, slash, _ = file.path.removeprefix(place.prefix).partition("/")
        shown = place.prefix + inner if in_run else inner
        found[inner] = {"path": shown, "is_dir": True} if slash else _file(shown, file.size)
    return [found[name] for name in sorted(found)]


def list_of_run(connection: Connection, call: Call) -> Answer:
    """Answer `artifacts/list`, with paths in the run."""
    row = run_views.find(connection, call.args.text("run_id", "run_uuid"))
    path = (call.args.maybe("path") or "").strip("/")
    files = listing(call.context, connection, Place(row.id, path), in_run=True)
    return {"root_uri": run_views.artifact_uri("0", row.id), "files": files}


def find(context: Context, connection: Connection, place: Place) -> RunFile:
    run_views.find(connection, place.run_id)
    for file in files_of(context, connection, place.run_id, with_checkpoints=False):
        if file.path == place.path:
            return file
    raise MlflowError(ABSENT, f"The run {place.run_id} has no artifact {place.path!r}")


def pieces(context: Context, file: RunFile, offset: int, length: int) -> Iterator[bytes]:
    with context.files.open(file.location) as source:
        source.seek(offset)
        yield from pieces_of(source, length)


def forget(transaction: Transaction, place: Place) -> None:
    """Remove a file, or all files below a folder, that a client had added to a run."""
    files = tables.files
    mine = (files.c.run_id == place.run_id, files.c.attempt == 0)
    below = files.c.path.startswith(place.prefix, autoescape=True) if place.path else files.c.path != ""
    transaction.execute(delete(files).where(*mine, (files.c.path == place.path) | below))


def _file(path: str, size: int) -> Json:
    return {"path": path, "is_dir": False, "file_size": size}
