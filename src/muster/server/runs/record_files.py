"""The record of each run, kept in the store besides its files: a lost database is rebuilt from it."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from sqlalchemy import BindParameter, Connection, Table, bindparam, delete, insert, select

from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.store.backend import Store
from muster.wire.codec import Json

NAME = "record.json"
_PARTS: tuple[Table, ...] = (
    tables.attempts,
    tables.placements,
    tables.ranks,
    tables.files,
    tables.checkpoints,
    tables.output_files,
    tables.progress,
    tables.params,
    tables.run_tags,
)
"""The tables with a run's rows; its metrics are in the store as its ranks logged them."""

_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_SELECT_IDS = select(tables.runs.c.id).where(tables.runs.c.id.in_(_IDS))
_SELECT_RUNS = select(tables.runs).where(tables.runs.c.id.in_(_IDS))
_SELECT_PARTS = {table: select(table).where(table.c.run_id.in_(_IDS)) for table in _PARTS}

Rows = list[dict[str, Json]]
Record = dict[str, Rows]
"""The rows of each table, by its name."""


class Unrecorded:
    """Runs whose record in the store is older than that of the database."""

    def __init__(self) -> None:
        self._added: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._waiting: dict[str, None] = {}

    def add(self, run_id: str) -> None:
        self._added.put(run_id)

    def take(self, most: int | None = None) -> list[str]:
        """At most `most` runs, each once, the longest unrecorded first."""
        with suppress(queue.Empty):
            while True:
                self._waiting.setdefault(self._added.get_nowait())
        taken = list(islice(self._waiting, most))
        for run_id in taken:
            del self._waiting[run_id]
        return taken


def load(connection: Connection, ids: Sequence[str]) -> dict[str, Record]:
    """All rows of these runs, with one query per table; removed runs are left out."""
    found: dict[str, Record] = {}
    for row in connection.execute(_SELECT_RUNS, {"ids": ids}):
        found[row.id] = {tables.runs.name: [dict(row._mapping)], **{table.name: [] for table in _PARTS}}
    for table, query in _SELECT_PARTS.items():
        for row in connection.execute(query, {"ids": list(found)}) if found else ():
            found[row.run_id][table.name].append(_without_secret(dict(row._mapping)))
    return found


def still_there(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Those of these runs that the database still has."""
    return set(connection.execute(_SELECT_IDS, {"ids": ids}).scalars())


def keep(store: Store, run_id: str, record: Record) -> None:
    store.put(_location(run_id), [json.dumps(record).encode()])


def read(store: Store, run_id: str) -> Record | None:
    """The record of a run; None where there is no readable one."""
    try:
        with store.open(_location(run_id)) as file:
            found: Record = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get(tables.runs.name) else None


def forget(store: Store, run_id: str) -> None:
    """Removed before anything else: a half-removed run must not be taken for a missing one."""
    store.remove(_location(run_id))


def known_to(store: Store) -> Iterator[str]:
    """The runs that the store has a record of; slow on a remote store."""
    if store.local_root is None:
        parts = (name.split("/") for name, _, _ in store.files("runs"))
        yield from sorted(part[-2] for part in parts if part[-1] == NAME)
    elif (folder := store.local_root / "runs").is_dir():
        yield from sorted(path.name for path in folder.iterdir() if (path / NAME).exists())


def missing(connection: Connection, store: Store) -> list[str]:
    """Runs that the store has a record of and the database does not know."""
    stored = list(known_to(store))
    known = set(connection.execute(select(tables.runs.c.id)).scalars()) if stored else set()
    return [run_id for run_id in stored if run_id not in known]


def put_back(transaction: Transaction, record: Record) -> None:
    """Replace what the database has of a run by its record."""
    run = record[tables.runs.name][0]
    transaction.execute(delete(tables.runs).where(tables.runs.c.id == run["id"]))
    for table in _PARTS:
        transaction.execute(delete(table).where(table.c.run_id == run["id"]))
    for table in (tables.runs, *_PARTS):
        for row in record.get(table.name, []):
            transaction.execute(insert(table).values(_insertable(transaction, table, row)))


def _insertable(transaction: Transaction, table: Table, row: dict[str, Json]) -> dict[str, Json]:
    """The row with today's columns, without an id that another row has taken since."""
    known = {key: value for key, value in row.items() if key in table.columns}
    for column in table.primary_key:
        if column.autoincrement is True:
            taken = select(column).where(column == known.get(column.name))
            if transaction.execute(taken).first() is not None:
                known.pop(column.name)
    return known


def _without_secret(row: dict[str, Any]) -> dict[str, Json]:
    """The row without its plan's secret, by which ranks authenticate each other."""
    plan = row.get("plan")
    return row | {"plan": {key: plan[key] for key in plan if key != "secret"}} if isinstance(plan, dict) else row


def _location(run_id: str) -> str:
    return f"runs/{run_id}/{NAME}"
