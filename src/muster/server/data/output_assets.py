"""Outputs that become data assets when their run completes: where they lie, and how they are registered."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial

from sqlalchemy import Connection, select

from muster import errors
from muster.host import clock
from muster.job.parts import Output
from muster.job.spec import JobSpec
from muster.server.context import Context
from muster.server.data import asset_content, assets
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note
from muster.storage.addresses import DEFAULT_DATASTORE, check_asset_name, datastore_address
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.data.access import FileEntry
from muster.wire.data.assets import NewAsset

log = logging.getLogger(__name__)

_DATA = ("uri_file", "uri_folder", "mltable")
_FOLDER = "azureml"
_LATE_S = 24 * 3600.0
"""How long after its end a run's outputs are still registered by the next server."""


def placed(spec: JobSpec, run_id: str) -> JobSpec:
    """The job with a place for each output that becomes a data asset, and with the run's name in outputs' paths."""
    outputs = {name: _placed(name, output, run_id) for name, output in spec.outputs.items()}
    return spec.model_copy(update={"outputs": outputs}) if outputs != spec.outputs else spec


def check(connection: Connection, spec: JobSpec) -> None:
    """Refuse a name that no asset can have, and a version that exists already."""
    for name, output in spec.outputs.items():
        if output.name is None or output.type not in _DATA:
            continue
        try:
            check_asset_name(output.name)
            if output.version is not None and assets.exists(connection, output.name, output.version):
                raise errors.Conflict(
                    f"the data asset {output.name}:{output.version} exists, and what exists never changes",
                    "Leave the version out for the next one.",
                )
        except errors.MusterError as error:
            raise errors.JobError(f"outputs.{name}: {error.message}", error.hint) from error


def register(
    context: Context, transaction: Transaction, run_id: str, spec: Mapping[str, Json], person: str | None
) -> None:
    """Register the outputs of a completed run: those on this machine with its end, the rest soon after it."""
    for name, output in _named(spec):
        if output.type in _DATA and output.path is not None:
            body = _asset(output, output.path, run_id)
            files = asset_content.seen(context, transaction.connection, body.address, folder=output.type != "uri_file")
            if files == []:
                add_note(transaction, run_id, "warning", f"output {name} is not registered: nothing was written to it")
            elif files is not None:
                _create(context, transaction, name, body, person, output.type, files)
            else:
                transaction.after_commit.append(
                    partial(context.hub.in_background, partial(_later, context, name, body, person))
                )


def take_up(context: Context) -> None:
    """Register outputs that an earlier server did not get to."""
    for run_id, outputs, person in context.database.read_now(_unregistered):
        for name, output in outputs:
            if output.type in _DATA and output.path is not None:
                _later(context, name, _asset(output, output.path, run_id), person)


def _placed(name: str, output: Output, run_id: str) -> Output:
    path = output.path
    if path is not None and "${{" in path:
        known = {"name": run_id, "output_name": name, "default_datastore": DEFAULT_DATASTORE}
        path = re.sub(r"\$\{\{\s*(\w+)\s*\}\}", lambda match: known.get(match[1], match[0]), path)
    own = re.compile(rf"{re.escape(datastore_address(DEFAULT_DATASTORE, _FOLDER))}/[^/]+/{re.escape(name)}")
    # A run that is submitted again has a place of its own.
    if output.name is not None and output.type in _DATA and (path is None or own.fullmatch(path)):
        path = datastore_address(DEFAULT_DATASTORE, f"{_FOLDER}/{run_id}/{name}")
    return output.model_copy(update={"path": path})


def _asset(output: Output, address: str, run_id: str) -> NewAsset:
    return NewAsset(output.name or "", address, type=output.type, version=output.version, run_id=run_id)


def _later(context: Context, name: str, body: NewAsset, person: str | None) -> None:
    try:
        kind, files = asset_content.measure(context, body)
        context.database.submit(lambda t: _create(context, t, name, body, person, kind, files)).result()
    except Exception as error:
        text = f"output {name} is not registered as {body.name}: {error}"
        log.warning("%s: %s", body.run_id, text)
        context.database.submit(lambda t: add_note(t, body.run_id or "", "warning", text)).result()


def _create(
    context: Context,
    transaction: Transaction,
    name: str,
    body: NewAsset,
    person: str | None,
    kind: str,
    files: list[FileEntry],
) -> None:
    run_id = body.run_id or ""
    try:
        made = assets.create(transaction, body, kind, files, person or "")
    except errors.MusterError as error:
        add_note(transaction, run_id, "warning", f"output {name} is not registered: {error.message}")
        return
    add_note(transaction, run_id, "info", f"output {name} is registered as the data asset {made.name}:{made.version}")
    transaction.after_commit.append(
        partial(context.hub.in_background, partial(asset_content.protect, context, made.address, files))
    )


def _unregistered(connection: Connection) -> list[tuple[str, list[tuple[str, Output]], str | None]]:
    runs, known = tables.runs, tables.assets
    query = select(runs.c.id, runs.c.spec, runs.c.submitted_by).where(
        runs.c.status == states.COMPLETED,
        runs.c.ended_at > clock.now() - _LATE_S,
        runs.c.id.not_in(select(known.c.run_id).where(known.c.run_id.is_not(None))),
    )
    rows = connection.execute(query).all()
    return [(row.id, found, row.submitted_by) for row in rows if (found := _named(row.spec))]


def _named(spec: Mapping[str, Json]) -> list[tuple[str, Output]]:
    """The outputs of a recorded job that have a name to be registered under."""
    declared = spec.get("outputs")
    outputs = declared.items() if isinstance(declared, Mapping) else ()
    named = ((name, item) for name, item in outputs if isinstance(item, Mapping) and item.get("name"))
    return [(name, Output.model_validate(item, strict=False)) for name, item in named]
