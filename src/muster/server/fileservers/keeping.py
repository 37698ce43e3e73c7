"""The runs that keep file servers: started, restarted, and the reports and orders of their processes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, select

from muster import errors
from muster.control import fileservers as control
from muster.host import clock
from muster.job.parts import Input
from muster.server.context import Context
from muster.server.data import grants
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.fileservers import records
from muster.server.runs import submission
from muster.wire import states
from muster.wire.codec import Json, from_json, to_json
from muster.wire.data.access import Access
from muster.wire.data.fileservers import (
    FileServerOrders,
    FileServerReport,
    FileServerView,
    FillOrder,
    FillProgress,
    FillView,
)
from muster.wire.runs import Submission

log = logging.getLogger("muster.server")

EXPERIMENT = "fileservers"
_RETRY: Json = {"user_error": 100, "on_codes": ["signal", "host_oom"], "backoff_s": 0.2}
_LOOK_S = 5.0
_LOOPBACK = "127.0.0.1"


async def keep_file_servers(context: Context) -> None:
    """Look after the runs of file servers when something about them changes, and from time to time."""
    while True:
        try:
            for name in await context.database.read(partial(_with_steps, context)):
                await context.database.write(partial(_advance, context, name=name))
        except Exception:
            log.exception("looking after the file servers failed; it is tried again")
        try:
            async with asyncio.timeout(_LOOK_S):
                await context.fileservers.changed.wait()
        except TimeoutError:
            pass
        context.fileservers.changed.clear()


def _with_steps(context: Context, connection: Connection) -> list[str]:
    rows = records.listed(connection)
    return [row.name for row in rows if control.next_step(kept(context, connection, row)) is not None]


def _advance(context: Context, transaction: Transaction, name: str) -> None:
    row = records.find(transaction, name)
    step = control.next_step(kept(context, transaction.connection, row))
    if step == "forget":
        records.forget(context, transaction, name)
    elif step == "start":
        try:
            start(context, transaction, row)
        except errors.MusterError as error:
            why = ". ".join(filter(None, (error.message, error.hint)))
            if row.trouble != why:
                records.change(context, transaction, name, trouble=why)


def start(context: Context, transaction: Transaction, row: Row[Any]) -> None:
    """Submit the run that keeps a file server."""
    spec: dict[str, Json] = {
        "display_name": f"fileserver-{row.name}",
        "experiment_name": EXPERIMENT,
        # Not among the modules that ranks get: it reads storage as an agent does.
        "command": ["python", "-E", "-m", "muster.fileserver"],
        "retry": _RETRY,
        "tags": {"fileserver": row.name},
        "resources": {"gpus_per_node": 0},
        "compute": row.cluster,
    }
    job = Submission(f"fileserver/{row.name}/{uuid.uuid4().hex}", spec, None, None, None, row.created_by)
    run = submission.accept(context, transaction, job, holds_cpus=False)
    records.change(context, transaction, row.name, run_id=run, attempt=0, has_served=False, trouble=None)


def kept(context: Context, connection: Connection, row: Row[Any]) -> control.Kept:
    """A file server as the decisions see it."""
    runs = tables.runs
    run = connection.execute(
        select(runs.c.status, runs.c.ended_at, runs.c.attempt).where(runs.c.id == row.run_id)
    ).first()
    report = context.fileservers.of(row.run_id)
    return control.Kept(
        run.status if run is not None else None,
        clock.now() - run.ended_at if run is not None and run.ended_at is not None else 0.0,
        row.has_served,
        run is not None and report is not None and report.port is not None and report.attempt >= run.attempt,
        row.removes,
    )


# Reports and orders of processes on nodes


def is_news(connection: Connection, run: str, report: FileServerReport) -> bool:
    """Whether a report has something to record: not the progress of a fill, but its end."""
    row = records.of_run(connection, run)
    return bool(_changes(connection, row, report)) or bool(_ended(connection, row, report))


def take(context: Context, transaction: Transaction, run: str, report: FileServerReport) -> None:
    """Record a process's report."""
    row = records.of_run(transaction, run)
    for fill in _ended(transaction.connection, row, report):
        table = tables.fills
        transaction.execute(table.update().where(table.c.id == fill.id).values(progress=to_json(fill)))
    if columns := _changes(transaction.connection, row, report):
        records.change(context, transaction, row.name, **columns)
        row = records.find(transaction, row.name)
    if report.port is not None and row.address and row.folder and not row.removes:
        records.register_store(context, transaction, row, row.address, report.port)


def _changes(connection: Connection, row: Row[Any], report: FileServerReport) -> dict[str, Json]:
    if report.attempt < row.attempt:
        # Reports of an earlier attempt that is still alive somewhere are ignored.
        return {}
    found: dict[str, Json] = {"attempt": report.attempt, "used_bytes": report.used_bytes}
    found["trouble"] = report.trouble or None
    if report.folder is not None:
        found["folder"] = report.folder
    if report.port is not None:
        found |= {"port": report.port, "has_served": True}
        found["address"] = _address(connection, row.run_id, report.attempt)
    return {name: value for name, value in found.items() if getattr(row, name) != value}


def _ended(connection: Connection, row: Row[Any], report: FileServerReport) -> list[FillProgress]:
    known = {fill.id: fill.progress for fill in records.fills(connection, row.name)}
    return [
        fill for fill in report.fills
        if fill.id in known and fill.state in ("filled", "failed") and to_json(fill) != known[fill.id]
    ]  # fmt: skip


def _address(connection: Connection, run: str | None, attempt: int) -> str:
    placements = tables.placements
    mine = placements.c.run_id == run, placements.c.number == attempt, placements.c.node_rank == 0
    return connection.execute(select(placements.c.address).where(*mine)).scalar() or _LOOPBACK


def orders(context: Context, connection: Connection, run: str, attempt: int) -> FileServerOrders:
    """The orders for the process of a file server."""
    row = records.of_run(connection, run)
    fills = tuple(FillOrder(fill.id, fill.source, fill.path) for fill in records.fills(connection, row.name))
    host = _LOOPBACK if row.clients == records.THIS_MACHINE else _address(connection, run, attempt)
    return FileServerOrders(
        row.name, row.size_bytes, host, row.port, row.clients, row.wanted_folder, fills, row.owner_key, row.removes
    )


def source_of(context: Context, connection: Connection, run: str, attempt: int, fill: int) -> Access:
    """How to reach a fill's source, with its list of files where the server has to make that."""
    row = records.of_run(connection, run)
    wanted = next((item for item in records.fills(connection, row.name) if item.id == fill), None)
    if wanted is None:
        raise errors.NotFound(f"the file server {row.name} has no fill {fill}", "It was taken back.")
    engine = connection.execute(select(tables.clusters.c.engine).where(tables.clusters.c.name == row.cluster)).scalar()
    here = engine is not None and context.nodes.engines.on_this_machine(engine)
    holder = grants.Holder(run, attempt, here)
    item = Input(path=wanted.source, mode="download")
    access = grants.input_access(context, connection, item, holder)
    assert access is not None
    if access.manifest_by_reference:
        files = grants.manifest(context, connection, item, holder).files
        return grants.with_files(access, files)
    return access


# Views for clients


def view(context: Context, connection: Connection, row: Row[Any]) -> FileServerView:
    report = context.fileservers.of(row.run_id)
    standing = kept(context, connection, row)
    state = control.state_of(standing)
    if state == "starting" and row.run_id is None and row.trouble:
        state = "failed"
    moving = {fill.id: fill for fill in (report.fills if report is not None else ())}
    fills = tuple(
        FillView(fill.source, fill.path, fill.created_by, fill.created_at, _progress(fill, moving.get(fill.id)))
        for fill in records.fills(connection, row.name)
    )
    serves = state == "serving"
    return FileServerView(
        name=row.name,
        state=state,
        size_bytes=row.size_bytes,
        used_bytes=report.used_bytes if report is not None else row.used_bytes,
        cluster=row.cluster,
        address=row.address if serves else None,
        port=row.port if serves else None,
        export=f"/{row.name}",
        folder=row.folder,
        node=_node(connection, row),
        clients=row.clients,
        datastore=row.name,
        run=row.run_id,
        restarts=report.restarts if report is not None else 0,
        fills=fills,
        why=None if serves else _why(connection, row, standing),
        description=row.description,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _progress(fill: Row[Any], moving: FillProgress | None) -> FillProgress:
    return moving if moving is not None else from_json(FillProgress, {**fill.progress, "id": fill.id})


def _node(connection: Connection, row: Row[Any]) -> str | None:
    placements = tables.placements
    mine = placements.c.run_id == row.run_id, placements.c.number == row.attempt, placements.c.node_rank == 0
    return connection.execute(select(placements.c.node).where(*mine)).scalar()


def _why(connection: Connection, row: Row[Any], standing: control.Kept) -> str | None:
    if row.trouble:
        return str(row.trouble)
    if not standing.is_over:
        return None
    verdict = connection.execute(select(tables.runs.c.verdict).where(tables.runs.c.id == row.run_id)).scalar()
    if standing.status == states.CANCELED:
        return f"its run was cancelled; `muster fileserver restart {row.name}` starts another"
    return verdict["message"] if verdict else None
