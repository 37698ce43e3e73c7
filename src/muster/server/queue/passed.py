"""How often queued runs were passed over, stored with them: a restarted server forgets nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select, update

from muster.control.scheduling.model import UNKNOWN
from muster.control.scheduling.queue import Passed
from muster.server.database import tables
from muster.server.database.connection import Transaction

_RUNS = tables.runs
_KNOWN = select(_RUNS.c.id, _RUNS.c.passed_over).where(_RUNS.c.passed_over.is_not(None))
_KEEP = update(_RUNS).where(_RUNS.c.id == bindparam("run_id")).values(passed_over=bindparam("record"))


def passed_of(record: Any) -> Passed:
    """The value stored in a run's record."""
    due_at = record["due_at"]
    return Passed(
        record["times"], frozenset(record["nodes"]), record["first_at"], UNKNOWN if due_at is None else due_at
    )


def keep_passed(transaction: Transaction, changed: Mapping[str, Passed | None]) -> None:
    """Write it down; None: the run has started, and its next wait counts from zero."""
    rows = [{"run_id": run_id, "record": None if each is None else _record(each)} for run_id, each in changed.items()]
    if rows:
        transaction.execute(_KEEP, rows)


def move_passed(transaction: Transaction, jump_s: float) -> None:
    """The clock was set: the start of each wait, and the time by which it should have ended, move with it."""
    known = {row.id: passed_of(row.passed_over) for row in transaction.execute(_KNOWN)}
    keep_passed(transaction, {run_id: each.moved(jump_s) for run_id, each in known.items()})


def _record(passed: Passed) -> dict[str, Any]:
    return {
        "times": passed.times,
        "nodes": sorted(passed.pools),
        "first_at": passed.first_at,
        "due_at": None if passed.due_at == UNKNOWN else passed.due_at,
    }
