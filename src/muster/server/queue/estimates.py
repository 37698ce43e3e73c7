"""What the server has learned of runs: how long they take, how long they wait, what each person has used.

Read from the database once, then kept up as runs end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, bindparam, select, update

from muster.control.estimates.book import Traits
from muster.control.estimates.length import Length
from muster.control.estimates.runs import Estimates, from_progress
from muster.control.estimates.traits import traits_of
from muster.control.estimates.waits import Interval, Waits
from muster.control.scheduling.shares import Ledger
from muster.defaults import SHARE_HALF_LIFE_S
from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.wire import states
from muster.wire.runs import Progress, slowest

_RUNS, _ATTEMPTS, _PLACEMENTS, _PROGRESS = tables.runs, tables.attempts, tables.placements, tables.progress
_REMEMBERED = 3000
_OLDEST_S = 5 * SHARE_HALF_LIFE_S
_ENDED = (
    select(_RUNS)
    .where(_RUNS.c.status.in_(states.TERMINAL), _RUNS.c.started_at.is_not(None))
    .order_by(_RUNS.c.seq.desc())
)
_WAITED = (
    select(_RUNS.c.forecast, _RUNS.c.started_at)
    .where(_RUNS.c.forecast.is_not(None), _RUNS.c.started_at.is_not(None))
    .order_by(_RUNS.c.seq.desc())
    .limit(_REMEMBERED)
)
_USED = (
    select(
        _PLACEMENTS.c.cluster,
        _PLACEMENTS.c.gpus,
        _RUNS.c.submitted_by,
        _ATTEMPTS.c.created_at,
        _ATTEMPTS.c.ended_at,
    )
    .join(_ATTEMPTS, (_ATTEMPTS.c.run_id == _PLACEMENTS.c.run_id) & (_ATTEMPTS.c.number == _PLACEMENTS.c.number))
    .join(_RUNS, _RUNS.c.id == _PLACEMENTS.c.run_id)
    .where(_ATTEMPTS.c.ended_at > bindparam("after"))
    .order_by(_ATTEMPTS.c.ended_at)
)
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)


class Learned:
    """Lengths, waits and use."""

    def __init__(self) -> None:
        self.lengths = Estimates()
        self.waits = Waits()
        self._ledgers: dict[str, Ledger] = {}
        self._used_until = 0.0
        self._ending: set[str] = set()

    def load(self, transaction: Transaction) -> None:
        """Start with what the database remembers."""
        now = clock.now()
        for row in reversed(transaction.execute(_ENDED.limit(_REMEMBERED)).all()):
            self._learn(row)
        for row in reversed(transaction.execute(_WAITED).all()):
            traits, told = forecast_of(row.forecast)
            self.waits.learn(traits, row.forecast["told_at"], row.started_at, told)
        self._add_use(transaction.execute(_USED, {"after": now - _OLDEST_S}))
        self._used_until = max(self._used_until, now - _OLDEST_S)

    def note_ends(self, transaction: Transaction, let_go: Iterable[str], changed: Iterable[str]) -> None:
        """Learn from runs that let go of their nodes, once their record is complete."""
        self._ending |= set(let_go)
        ids = sorted(self._ending.intersection(changed))
        if not ids:
            return
        for row in transaction.execute(_ENDED.where(_RUNS.c.id.in_(_IDS)), {"ids": ids}):
            self._learn(row)
            self._ending.discard(row.id)
        mine = _USED.where(_PLACEMENTS.c.run_id.in_(_IDS))
        self._add_use(transaction.execute(mine, {"after": self._used_until, "ids": ids}))

    def ledger(self, cluster: str) -> Ledger:
        return self._ledgers.setdefault(cluster, Ledger())

    def length_of(self, row: Any) -> Length:
        """How long a run is likely to take."""
        return self.lengths.length(traits_of_run(row), row.timeout_s, row.submitted_by or "")

    def _learn(self, row: Any) -> None:
        """Only from runs of one attempt: between several of them a run waits."""
        if row.attempt == 1 and row.ended_at is not None:
            length_s = row.ended_at - row.started_at
            self.lengths.learn(traits_of_run(row), length_s, row.timeout_s, row.submitted_by or "")

    def _add_use(self, rows: Iterable[Any]) -> None:
        for row in rows:
            held_s = (len(row.gpus) or 1) * (row.ended_at - row.created_at)
            self.ledger(row.cluster).add(row.submitted_by or "", held_s, row.ended_at)
            self._used_until = max(self._used_until, row.ended_at)


def traits_of_run(row: Any) -> Traits:
    """What a run has in common with others, by its record."""
    shape = (row.num_nodes, row.ranks_per_node, row.gpus_per_node)
    return traits_of(shape, row.submitted_by or "", row.experiment, row.spec)


def with_progress(length: Length, elapsed_s: float, progress: Progress | None) -> Length:
    """The same for a run that shows how far it has come."""
    if progress is None or not progress.done or not progress.total:
        return length
    return from_progress(length, elapsed_s, progress.done, progress.total)


def load_progress(transaction: Transaction, ids: Sequence[str]) -> Mapping[str, Progress]:
    """How far each of these runs has come: as far as its slowest rank."""
    found: dict[str, list[Progress]] = {}
    for row in transaction.execute(select(_PROGRESS).where(_PROGRESS.c.run_id.in_(_IDS)), {"ids": list(ids)}):
        found.setdefault(row.run_id, []).append(Progress(row.done, row.total, row.unit, row.rank))
    return {run_id: least for run_id, reports in found.items() if (least := slowest(reports)) is not None}


def forecast_of(record: Any) -> tuple[Traits, Interval]:
    """What a run was told first, as its record keeps it."""
    return tuple(record["traits"]), Interval(record["low_at"], record["high_at"])


def keep_forecast(transaction: Transaction, run_id: str, traits: Traits, told: Interval, now: float) -> None:
    """Write down what a run was told first, so that it can be compared with what came."""
    record = {"told_at": now, "low_at": told.low_at, "high_at": told.high_at, "traits": list(traits)}
    transaction.execute(update(_RUNS).where(_RUNS.c.id == run_id).values(forecast=record))
