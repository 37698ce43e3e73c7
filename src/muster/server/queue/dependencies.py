"""Queued runs that wait for other runs: kept in memory with the queue, checked when one of those has changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select

from muster import errors
from muster.control.dependencies import COMPLETED, parse, standing
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.wire import states

_STATUSES = select(*tables.runs.c["id", "status"]).where(tables.runs.c.id.in_(bindparam("ids", expanding=True)))


class Dependencies:
    """The runs that queued runs wait for."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._is_new = False
        self.held: dict[str, str] = {}
        """Runs that must not start yet, with the reason."""

    def put(self, row: Any) -> None:
        """Add a queued run; one that has started before does not wait again."""
        if row.spec.get("after") and row.started_at is None:
            self._wanted[row.id] = tuple(row.spec["after"])
            self._is_new = True

    def drop(self, run_id: str) -> None:
        self._wanted.pop(run_id, None)
        self.held.pop(run_id, None)

    def are_on(self, run_id: str) -> bool:
        """Whether a queued run waits for this run."""
        return bool(self._wanted) and run_id in self._theirs()

    def _theirs(self) -> set[str]:
        return {parse(text).run for wanted in self._wanted.values() for text in wanted}

    def update(self, transaction: Transaction, changed: Collection[str]) -> dict[str, str]:
        """Check again after changes; returns the runs that will never start, with the reason."""
        theirs = self._theirs()
        if not theirs or (not self._is_new and theirs.isdisjoint(changed)):
            return {}
        self._is_new = False
        statuses = {row.id: row.status for row in transaction.execute(_STATUSES, {"ids": sorted(theirs)})}
        found = {run_id: standing(wanted, statuses) for run_id, wanted in self._wanted.items()}
        self.held = {run_id: item.waits or item.never for run_id, item in found.items() if item.waits or item.never}
        for run_id in found.keys() - self.held.keys():
            del self._wanted[run_id]
        return {run_id: item.never for run_id, item in found.items() if item.never}


def settle(connection: Connection, wanted: Sequence[str]) -> tuple[str, ...]:
    """A job's dependencies with the runs' full ids; refuses one that can never be met."""
    found = []
    for text in wanted:
        item = parse(text)
        row = find_run(connection, item.run)
        if row.status in states.TERMINAL and row.status != states.COMPLETED and item.when == COMPLETED:
            raise errors.JobError(
                f"after: {row.id} has ended as {row.status}, so the job would never start",
                f"`muster retry {row.id}` runs it again; {row.id}:ended starts however it ended.",
            )
        found.append(f"{row.id}:{item.when}")
    return tuple(dict.fromkeys(found))
