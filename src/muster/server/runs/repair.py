"""Restores runs that the store has and the database lacks, or has only in an older state."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from muster.server.data.state import WorkspaceFiles
from muster.server.database import tables
from muster.server.database.backup import count_on
from muster.server.database.connection import Database, Transaction
from muster.server.database.records import add_event, add_note
from muster.server.runs import ingest, record_files
from muster.store.backend import Store
from muster.wire import states
from muster.wire.stream import StateChanged


@dataclass(frozen=True)
class Rebuilt:
    """What was restored from the store."""

    added: tuple[str, ...]
    """Runs that the database did not have."""
    renewed: tuple[str, ...]
    """Runs that were still active in the database, and have ended."""
    without_record: tuple[str, ...]
    """Folders of runs whose record cannot be read; their files are untouched."""


def rebuild(database: Database, files: WorkspaceFiles) -> Rebuilt:
    """Restore each run whose record is newer than the database."""
    known = database.read_now(lambda c: dict(c.execute(select(tables.runs.c.id, tables.runs.c.status)).tuples().all()))
    added, renewed, unreadable = [], [], []
    for run_id in record_files.known_to(files.store):
        record = record_files.read(files.store, run_id)
        if record is None:
            unreadable.append(run_id)
            continue
        status = record[tables.runs.name][0]["status"]
        if run_id not in known:
            added.append(run_id)
        elif known[run_id] not in states.TERMINAL and status in states.TERMINAL:
            renewed.append(run_id)
        else:
            continue
        database.submit(lambda t, run=run_id, found=record: _put_back(files, t, run, found)).result()  # type: ignore[misc]
    database.submit(lambda transaction: count_on(transaction.connection)).result()
    unreadable += _without_record(files.store, known)
    return Rebuilt(tuple(added), tuple(renewed), tuple(sorted(unreadable)))


def _put_back(files: WorkspaceFiles, transaction: Transaction, run_id: str, record: record_files.Record) -> None:
    record_files.put_back(transaction, record)
    for row in record[tables.attempts.name]:
        number = int(str(row["number"]))
        for stream, _size in files.streams.names(run_id, number):
            if stream.startswith("events/"):
                ingest.parse_stream(files.streams, transaction, run_id, number, stream)
    # Parsing changes tags and notices; the record has them as they were.
    transaction.execute(
        tables.runs.update().where(tables.runs.c.id == run_id),
        {name: record[tables.runs.name][0][name] for name in ("tags", "notices")},
    )
    add_note(transaction, run_id, "warning", "this record was rebuilt from the store by `muster repair`")
    run = record[tables.runs.name][0]
    status = next(state for state in states.ALL if state == run["status"])
    add_event(transaction, run_id, StateChanged(status, float(str(run["ended_at"] or run["created_at"]))))


def _without_record(store: Store, known: dict[str, str]) -> list[str]:
    folder = store.local_root / "runs" if store.local_root is not None else None
    if folder is None or not folder.is_dir():
        return []
    names = (path.name for path in folder.iterdir() if path.is_dir() and not (path / record_files.NAME).exists())
    return [name for name in names if name not in known]
