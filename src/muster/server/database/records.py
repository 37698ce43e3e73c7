"""Small reads and writes of rows that several rooms need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, bindparam, exists, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert_postgres
from sqlalchemy.dialects.sqlite import insert as upsert_sqlite

from muster import errors
from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.wire import states
from muster.wire.codec import Json, to_json
from muster.wire.data.access import HashedFile
from muster.wire.states import Level, RunStatus
from muster.wire.stream import CheckpointPublished, Note, RankEnded, RankStarted, StateChanged
from muster.wire.tracking import PARENT_TAG

M = TypeVar("M")
RunRow = Row[Any]
Recorded = StateChanged | Note | RankStarted | RankEnded | CheckpointPublished
"""The events of a run's stream that are recorded."""


class Keyed:
    """Statements over a table by key columns, built once: building them costs more than running them."""

    def __init__(self, table: Table, *columns: str, order: str | None = None) -> None:
        self._columns = columns
        where = [table.c[name] == bindparam(f"key_{name}") for name in columns]
        self.select = select(table).where(*where)
        if order:
            self.select = self.select.order_by(table.c[order])
        self.update = update(table).where(*where)

    def rows(self, transaction: Transaction, *key: Any) -> Sequence[Row[Any]]:
        found: Sequence[Row[Any]] = transaction.execute(self.select, self._key(key)).all()
        return found

    def first(self, transaction: Transaction, *key: Any) -> Row[Any] | None:
        found: Row[Any] | None = transaction.execute(self.select, self._key(key)).first()
        return found

    def one(self, transaction: Transaction, *key: Any) -> Row[Any]:
        found: Row[Any] = transaction.execute(self.select, self._key(key)).one()
        return found

    def set(self, transaction: Transaction, *key: Any, **values: Any) -> int:
        """Change columns; returns how many rows there were."""
        return int(transaction.execute(self.update, {**self._key(key), **values}).rowcount)

    def _key(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {f"key_{name}": value for name, value in zip(self._columns, key, strict=True)}


def message_of(kind: type[M], row: Row[Any], **others: Any) -> M:
    """A message from the row's columns of the same names; `others`: fields that no column holds in that form."""
    known: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{**{name: value for name, value in row._mapping.items() if name in known}, **others})


CLUSTERS = select(tables.clusters)
RUN = Keyed(tables.runs, "id")
BY_KEY = Keyed(tables.runs, "key")
ATTEMPT = Keyed(tables.attempts, "run_id", "number")
PLACEMENTS = Keyed(tables.placements, "run_id", "number", order="node_rank")
PLACEMENT = Keyed(tables.placements, "run_id", "number", "node_rank")
RANKS = Keyed(tables.ranks, "run_id", "number", order="rank")
RANK = Keyed(tables.ranks, "run_id", "number", "rank")
CLUSTER = Keyed(tables.clusters, "name")
_COUNT_ACTIVE = (
    select(func.count()).select_from(tables.runs).where(tables.runs.c.status.in_((*states.ACTIVE, states.QUEUED)))
)
_CANDIDATES = 5
"""How many runs of the same name an error lists."""
ADD_EVENT = insert(tables.events)


def add_event(transaction: Transaction, run_id: str, event: Recorded) -> None:
    """Record an event for the followers of the run."""
    transaction.execute(ADD_EVENT, event_row(run_id, event))


def event_row(run_id: str, event: Recorded) -> dict[str, Json]:
    data = to_json(event)
    return {"run_id": run_id, "at": data.pop("at"), "kind": event.kind, "data": data}


def add_note(transaction: Transaction, run_id: str, level: Level, text: str) -> None:
    """Send a note to the followers of a run."""
    add_event(transaction, run_id, Note(level, text, clock.now()))


def add_note_once(transaction: Transaction, run_id: str, level: Level, text: str) -> None:
    """Send a note, unless the run has it already."""
    events = tables.events
    notes = select(events.c.data).where(events.c.run_id == run_id, events.c.kind == Note.kind)
    if all(data.get("text") != text for data in transaction.execute(notes).scalars()):
        add_note(transaction, run_id, level, text)


def move_run(transaction: Transaction, run_id: str, status: RunStatus, **columns: Any) -> None:
    """Put a run in its next state, and notify its followers."""
    RUN.set(transaction, run_id, status=status, **columns)
    add_event(transaction, run_id, StateChanged(status, clock.now()))


def upsert(transaction: Transaction, table: Table, values: Mapping[str, Any], newer: str | None = None) -> None:
    """Add a row or replace the one with the same key; with `newer` only where that column does not decrease."""
    dialect = upsert_sqlite if transaction.connection.dialect.name == "sqlite" else upsert_postgres
    adding = dialect(table).values(values)
    key = [column.name for column in table.primary_key]
    fresh = {name: value for name, value in values.items() if name not in key}
    where = adding.excluded[newer] >= table.c[newer] if newer else None
    transaction.execute(adding.on_conflict_do_update(index_elements=key, set_=fresh, where=where))


def record_file(
    transaction: Transaction, run_id: str, attempt: int, node_rank: int, path: str, size: int, sha256: str
) -> None:
    """Record a run's file; it replaces an earlier one of the same name."""
    row = {"run_id": run_id, "attempt": attempt, "node_rank": node_rank, "path": path, "size": size, "sha256": sha256}
    upsert(transaction, tables.files, row)


def record_files(
    transaction: Transaction, run_id: str, attempt: int, node_rank: int, files: Iterable[HashedFile]
) -> None:
    """Record a run's files; they replace earlier ones of the same names."""
    key = {"run_id": run_id, "attempt": attempt, "node_rank": node_rank}
    # Of two with one name the last counts, as if they had come one after the other.
    rows = {file.path: {**key, "path": file.path, "size": file.size, "sha256": file.sha256} for file in files}
    dialect = upsert_sqlite if transaction.connection.dialect.name == "sqlite" else upsert_postgres
    adding = dialect(tables.files)
    fresh = {name: adding.excluded[name] for name in ("size", "sha256")}
    names = [column.name for column in tables.files.primary_key]
    if rows:
        transaction.execute(adding.on_conflict_do_update(index_elements=names, set_=fresh), list(rows.values()))


def node_rank_of(connection: Connection | Transaction, run_id: str, number: int, node: str) -> int:
    """The rank of a node in an attempt; raises NotFound where the attempt has no such node, or it is closed there."""
    table = tables.placements
    mine = (table.c.run_id == run_id, table.c.number == number, table.c.node == node, table.c.phase != states.CLOSED)
    found = connection.execute(select(table.c.node_rank).where(*mine)).scalar()
    if found is None:
        raise errors.NotFound(f"attempt {number} of {run_id} is not on {node}, or it is over there")
    return int(found)


def find_run(connection: Connection | Transaction, ref: str) -> RunRow:
    """A run by its id, a unique prefix of it, a name of its own, or `@latest`: the newest that no other run made."""
    runs = tables.runs
    if ref == "@latest":
        made = exists().where(tables.run_tags.c.run_id == runs.c.id, tables.run_tags.c.name == PARENT_TAG)
        found = select(runs).where(runs.c.experiment != states.CHECKS, ~made)
        row = connection.execute(found.order_by(runs.c.seq.desc()).limit(1)).first()
        if row is None:
            raise errors.NotFound("there is no run yet", "Start one with `muster run`.")
        return row
    row = connection.execute(RUN.select, {"key_id": ref}).first()
    if row is not None:
        return row
    named = or_(runs.c.name == ref, runs.c.display_name == ref)
    begun = runs.c.id.startswith(ref, autoescape=True)
    for condition, what in ((named, "is the name"), (begun, "begins the ids")):
        rows = connection.execute(
            select(runs).where(condition).order_by(runs.c.seq.desc()).limit(_CANDIDATES + 1)
        ).all()
        if len(rows) == 1:
            return rows[0]
        if rows:
            count = select(func.count()).select_from(runs).where(condition)
            raise _ambiguous(ref, what, rows[:_CANDIDATES], connection.execute(count).scalar_one())
    raise errors.NotFound(f"there is no run {ref!r}", "`muster ps` lists the runs of this workspace.")


def _ambiguous(ref: str, what: str, newest: Sequence[RunRow], count: int) -> errors.Conflict:
    """The error for an ambiguous name: removing or cancelling must not hit an unintended run."""
    listed = [f"{row.id}  {row.status}  {row.name if row.name not in (None, ref) else ''}".rstrip() for row in newest]
    more = [f"… and {count - len(newest)} more"] if count > len(newest) else []
    hint = "Say which one by its id; @latest is the newest run of all."
    return errors.Conflict(f"{ref!r} {what} of {count} runs", "\n".join((*listed, *more, hint)))


def active_runs(connection: Connection) -> list[str]:
    """Some of the active runs, the newest first."""
    runs = tables.runs
    newest = select(runs.c.id).where(runs.c.status.in_((*states.ACTIVE, states.QUEUED))).order_by(runs.c.seq.desc())
    return [str(name) for name in connection.execute(newest.limit(_CANDIDATES)).scalars()]


def active_run_count(connection: Connection) -> int:
    return int(connection.execute(_COUNT_ACTIVE).scalar_one())
