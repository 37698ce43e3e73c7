"""Small reads and writes of rows that several parts need."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from muster import errors
from muster.control import states
from muster.server import tables
from muster.server.database import Transaction

RunRow = Row[Any]


def add_event(
    transaction: Transaction, run_id: str, kind: str, data: Mapping[str, Any], at: float | None = None
) -> None:
    transaction.execute(
        insert(tables.events).values(run_id=run_id, at=time.time() if at is None else at, kind=kind, data=dict(data))
    )


def move_run(transaction: Transaction, run_id: str, status: str, **columns: Any) -> None:
    """Put a run in its next state, and say so to those who follow it."""
    transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(status=status, **columns))
    add_event(transaction, run_id, "state", {"status": status})


def find_run(connection: Connection | Transaction, ref: str) -> RunRow:
    """A run by its id, a unique prefix of it, its name, or `@latest`."""
    runs = tables.runs
    if ref == "@latest":
        row = connection.execute(select(runs).order_by(runs.c.seq.desc()).limit(1)).first()
        if row is None:
            raise errors.NotFound("there is no run yet", "Start one with `muster run`.")
        return row
    row = connection.execute(select(runs).where(runs.c.id == ref)).first()
    if row is not None:
        return row
    row = connection.execute(
        select(runs).where(or_(runs.c.name == ref, runs.c.display_name == ref)).order_by(runs.c.seq.desc()).limit(1)
    ).first()
    if row is not None:
        return row
    rows: Sequence[RunRow] = connection.execute(
        select(runs).where(runs.c.id.startswith(ref, autoescape=True)).order_by(runs.c.seq.desc()).limit(6)
    ).all()
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise errors.Conflict(
            f"{ref!r} begins the ids of several runs: {', '.join(row.id for row in rows[:5])}",
            "Give more of the id.",
        )
    raise errors.NotFound(f"there is no run {ref!r}", "`muster ps` lists the runs of this workspace.")


def active_run_count(connection: Connection) -> int:
    waiting = (*states.ACTIVE, states.QUEUED, states.NOT_STARTED)
    return len(connection.execute(select(tables.runs.c.id).where(tables.runs.c.status.in_(waiting))).all())
