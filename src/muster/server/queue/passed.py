"""How often queued runs were passed over, kept with them: a server that starts again forgets nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, update

from muster.control.scheduling.model import UNKNOWN
from muster.control.scheduling.queue import Passed
from muster.server.database import tables
from muster.server.database.connection import Transaction

_RUNS = tables.runs
_KEEP = update(_RUNS).where(_RUNS.c.id == bindparam("run_id")).values(passed_over=bindparam("record"))


def passed_of(record: Any) -> Passed:
    """What the record of a run keeps."""
    due_at = record["due_at"]
    return Passed(
        record["times"], frozenset(record["nodes"]), record["first_at"], UNKNOWN if due_at is None else due_at
    )


def keep_passed(transaction: Transaction, changed: Mapping[str, Passed | None]) -> None:
    """Write it down; None: the run has started, and a next wait begins anew."""
    rows = [{"run_id": run_id, "record": None if each is None else _record(each)} for run_id, each in changed.items()]
    if rows:
        transaction.execute(_KEEP, rows)


def _record(passed: Passed) -> dict[str, Any]:
    return {
        "times": passed.times,
        "nodes": sorted(passed.pools),
        "first_at": passed.first_at,
        "due_at": None if passed.due_at == UNKNOWN else passed.due_at,
    }
