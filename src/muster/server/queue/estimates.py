"""What the server has learned from runs: how long they take, how long they wait, how much each person has used.

Read from the database once, then kept up to date as runs end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import BindParameter, bindparam, func, select, update

from muster.control.estimates.book import Traits
from muster.control.estimates.length import Length
from muster.control.estimates.runs import Estimates, from_progress
from muster.control.estimates.traits import traits_of
from muster.control.estimates.waits import Interval, Waits
from muster.control.scheduling.model import Running
from muster.control.scheduling.shares import Ledger, weight_of
from muster.defaults import SHARE_HALF_LIFE_S
from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.wire import states
from muster.wire.runs import Progress, slowest

_RUNS, _ATTEMPTS, _PLACEMENTS, _PROGRESS = tables.runs, tables.attempts, tables.placements, tables.progress
_REMEMBERED = 3000
_OLDEST_S = 5 * SHARE_HALF_LIFE_S
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_ENDED = (
    select(
        *_RUNS.c["num_nodes", "ranks_per_node", "gpus_per_node", "submitted_by", "experiment", "spec"],
        *_RUNS.c["attempt", "started_at", "ended_at", "timeout_s"],
    )
    .where(_RUNS.c.status.in_(states.TERMINAL), _RUNS.c.started_at.is_not(None))
    .order_by(_RUNS.c.seq.desc())
    .limit(_REMEMBERED)
)
_ENDS = select(*_RUNS.c["id", "attempt", "started_at", "ended_at", "timeout_s", "submitted_by"]).where(
    _RUNS.c.status.in_(states.TERMINAL), _RUNS.c.started_at.is_not(None), _RUNS.c.id.in_(_IDS)
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
        *_RUNS.c["submitted_by", "gpu_share"],
        _ATTEMPTS.c.created_at,
        _ATTEMPTS.c.ended_at,
    )
    .join(_ATTEMPTS, (_ATTEMPTS.c.run_id == _PLACEMENTS.c.run_id) & (_ATTEMPTS.c.number == _PLACEMENTS.c.number))
    .join(_RUNS, _RUNS.c.id == _PLACEMENTS.c.run_id)
    .where(_ATTEMPTS.c.ended_at > bindparam("after"))
    .order_by(_ATTEMPTS.c.ended_at)
)
_EARLIER = (
    select(_ATTEMPTS.c.run_id, func.sum(_ATTEMPTS.c.ended_at - _ATTEMPTS.c.started_at).label("seconds"))
    .where(_ATTEMPTS.c.run_id.in_(_IDS), _ATTEMPTS.c.started_at.is_not(None), _ATTEMPTS.c.ended_at.is_not(None))
    .group_by(_ATTEMPTS.c.run_id)
)
_FORECASTS = select(_RUNS.c.id, _RUNS.c.forecast).where(
    _RUNS.c.forecast.is_not(None), _RUNS.c.status.not_in(states.TERMINAL)
)
_KEEP_FORECAST = update(_RUNS).where(_RUNS.c.id == bindparam("run_id")).values(forecast=bindparam("record"))


@dataclass(frozen=True, slots=True)
class Holder:
    """Kept for a run while it holds nodes, so that nothing has to be read again when it ends."""

    traits: Traits
    length: Length


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """When a waiting run was first expected to start, and the grounds for it."""

    traits: Traits
    since: float
    first: Interval
    others_s: float = 0.0
    """How long others had waited at that time."""

    def moved(self, jump_s: float) -> FirstForecast:
        """The same after the clock was set forward by this much."""
        first = Interval(self.first.low_at + jump_s, self.first.high_at + jump_s, self.first.likely_at + jump_s)
        return replace(self, since=self.since + jump_s, first=first)


class Learned:
    """Lengths, waits and use."""

    def __init__(self) -> None:
        self.lengths = Estimates()
        self.waits = Waits()
        self._ledgers: dict[str, Ledger] = {}
        self._ending: dict[str, Traits] = {}

    def load(self, transaction: Transaction) -> None:
        """Start with the records of the database."""
        now = clock.now()
        for row in reversed(transaction.execute(_ENDED).all()):
            self._learn(row, traits_of_run(row))
        for row in reversed(transaction.execute(_WAITED).all()):
            forecast = first_forecast(row.forecast)
            self.waits.learn(forecast.traits, forecast.since, row.started_at, forecast.first)
        for row in transaction.execute(_USED, {"after": now - _OLDEST_S}):
            held_s = (len(row.gpus) * (row.gpu_share or 1) or 1) * (row.ended_at - row.created_at)
            self.ledger(row.cluster).add(row.submitted_by or "", held_s, row.ended_at)

    def let_go(self, running: Running, traits: Traits | None, now: float) -> None:
        """A run no longer holds nodes; its length is learned once its record is complete."""
        self.ledger(running.cluster).add(running.user, weight_of(running) * max(0.0, now - running.since), now)
        if traits is not None:
            self._ending[running.run_id] = traits

    def note_ends(self, transaction: Transaction, changed: Iterable[str]) -> None:
        """Learn from runs that released their nodes and whose record is complete."""
        ids = sorted(self._ending.keys() & set(changed)) if self._ending else ()
        for row in transaction.execute(_ENDS, {"ids": ids}) if ids else ():
            self._learn(row, self._ending.pop(row.id))

    def ledger(self, cluster: str) -> Ledger:
        return self._ledgers.setdefault(cluster, Ledger())

    def length_of(self, row: Any, traits: Traits | None = None) -> Length:
        """How long a run is likely to take."""
        return self.lengths.length(
            traits_of_run(row) if traits is None else traits, row.timeout_s, row.submitted_by or ""
        )

    def _learn(self, row: Any, traits: Traits) -> None:
        """Only from runs of one attempt: a run waits between its attempts."""
        if row.attempt == 1 and row.ended_at is not None:
            self.lengths.learn(traits, row.ended_at - row.started_at, row.timeout_s, row.submitted_by or "")


def traits_of_run(row: Any) -> Traits:
    """The traits of a run, from its record."""
    shape = (row.num_nodes, row.ranks_per_node, row.gpus_per_node)
    return traits_of(shape, row.submitted_by or "", row.experiment, row.spec)


def of_attempt(length: Length, limit_s: float | None, before_s: float) -> Length:
    """The length of a run whose earlier attempts ran for `before_s`: its limit applies to the present attempt only."""
    return length if limit_s is None else length.within(limit_s + before_s)


def with_progress(length: Length, elapsed_s: float, progress: Progress | None) -> Length:
    """The same for a run that reports its progress."""
    if progress is None or not progress.done or not progress.total:
        return length
    return from_progress(length, elapsed_s, progress.done, progress.total)


def load_progress(transaction: Transaction, attempts: Mapping[str, int]) -> Mapping[str, Progress]:
    """The progress of each of these runs in its present attempt: that of its slowest rank."""
    found: dict[str, list[Progress]] = {}
    for row in transaction.execute(select(_PROGRESS).where(_PROGRESS.c.run_id.in_(_IDS)), {"ids": sorted(attempts)}):
        if row.attempt == attempts[row.run_id]:
            found.setdefault(row.run_id, []).append(Progress(row.done, row.total, row.unit, row.rank))
    return {run_id: least for run_id, reports in found.items() if (least := slowest(reports)) is not None}


def load_earlier(transaction: Transaction, ids: Sequence[str]) -> Mapping[str, float]:
    """For how many seconds the finished attempts of these runs ran."""
    return {row.run_id: row.seconds for row in transaction.execute(_EARLIER, {"ids": list(ids)})}


def first_forecast(record: Any) -> FirstForecast:
    """A run's first forecast, from its record."""
    first = Interval(record["low_at"], record["high_at"])
    return FirstForecast(tuple(record["traits"]), record["told_at"], first, record.get("others_s", 0.0))


def move_forecasts(transaction: Transaction, jump_s: float) -> None:
    """The clock was set: the forecasts of runs that have not ended move with it."""
    known = {row.id: first_forecast(row.forecast) for row in transaction.execute(_FORECASTS)}
    keep_forecasts(transaction, {run_id: each.moved(jump_s) for run_id, each in known.items()})


def keep_forecasts(transaction: Transaction, forecasts: Mapping[str, FirstForecast]) -> None:
    """Write down the first forecasts of runs, to compare them with the actual starts."""
    rows = [
        {
            "run_id": run_id,
            "record": {
                "told_at": each.since,
                "low_at": each.first.low_at,
                "high_at": each.first.high_at,
                "traits": list(each.traits),
                "others_s": each.others_s,
            },
        }
        for run_id, each in forecasts.items()
    ]
    if rows:
        transaction.execute(_KEEP_FORECAST, rows)
