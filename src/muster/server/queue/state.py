"""The scheduler's queue: every queued run in memory, kept up to date by the database's record of changes.

A pass reads the changes of state since the last one, never the whole queue. After any failure, a new queue is read
from the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Row, String, and_, bindparam, cast, exists, func, select

from muster.control.estimates.book import Traits
from muster.control.estimates.length import Length
from muster.control.estimates.waits import Interval
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.explain import Explanations, head_reason
from muster.control.scheduling.model import UNKNOWN, Decision, Gang, Need, Part, Rules, Running
from muster.control.scheduling.outlook import others_waited_s, wait_traits
from muster.control.scheduling.queue import Passed, Queue
from muster.defaults import GRACE_CANCEL_S, PRIORITY_HEADSTART_S, PROGRESS_FIRST_S, START_MARGIN_S
from muster.host import clock
from muster.job.parts import Retry
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.environments.builds import Builds
from muster.server.queue.dependencies import Dependencies
from muster.server.queue.environments import Environments
from muster.server.queue.estimates import (
    FirstForecast,
    Holder,
    Learned,
    first_forecast,
    keep_forecasts,
    load_earlier,
    load_progress,
    of_attempt,
    traits_of_run,
    with_progress,
)
from muster.server.queue.passed import keep_passed, passed_of
from muster.server.runs.record_files import Unrecorded
from muster.wire import states
from muster.wire.runs import Progress

log = logging.getLogger("muster.server")

_RUNS, _EVENTS = tables.runs, tables.events
_MEMBERS = tables.endpoint_runs
_APART = _MEMBERS.c.endpoint + "/" + _MEMBERS.c.deployment + "/" + cast(_MEMBERS.c.revision, String)
"""Parts of one deployment stay off each other's nodes; null for a front door."""
_WITH_MEMBERS = _RUNS.outerjoin(_MEMBERS, _MEMBERS.c.run_id == _RUNS.c.id)
_WAITING = (
    select(
        *_RUNS.c["id", "seq", "experiment", "submitted_by", "compute", "priority", "created_at", "num_nodes"],
        *_RUNS.c["ranks_per_node", "gpus_per_node", "gpu_share", "timeout_s", "preemptible", "retry_at"],
        *_RUNS.c["excluded_nodes", "spec", "forecast", "started_at", "environment", "python", "passed_over"],
        _APART.label("apart"),
    )
    .select_from(_WITH_MEMBERS)
    .where(_RUNS.c.status == states.QUEUED)
)
_SOME = _WAITING.where(_RUNS.c.id.in_(bindparam("ids", expanding=True)))
_SPECS = select(_RUNS).where(_RUNS.c.id.in_(bindparam("ids", expanding=True)))
_COUNT = select(func.count()).select_from(_RUNS).where(_RUNS.c.status == states.QUEUED)
_CHANGES = select(_EVENTS.c.id, _EVENTS.c.run_id).where(_EVENTS.c.id > bindparam("seen"), _EVENTS.c.kind == "state")
_MOST_MOVED = 20_000
_LAST_CHANGE = select(func.max(_EVENTS.c.id))


def _holding() -> Any:
    placements, attempts = tables.placements, tables.attempts
    mine = and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number)
    return (
        select(
            *placements.c["run_id", "number", "cluster", "node", "host", "ranks", "gpus"],
            *attempts.c["created_at", "started_at", "stop_reason"],
            *_RUNS.c["seq", "priority", "timeout_s", "preemptible", "submitted_by", "experiment", "gpu_share"],
            _RUNS.c.created_at.label("submitted_at"),
            _APART.label("apart"),
            exists().where(tables.checkpoints.c.run_id == placements.c.run_id).label("checkpoints"),
        )
        .join(_RUNS, _RUNS.c.id == placements.c.run_id)
        .join(attempts, mine)
        .outerjoin(_MEMBERS, _MEMBERS.c.run_id == placements.c.run_id)
        .where(placements.c.phase.in_(states.HOLDS_RESOURCES))
    )


_HOLDING = _holding()


class RunQueue:
    """The waiting runs, and the findings of the last pass about them."""

    def __init__(self, passed: Mapping[str, Passed] | None = None) -> None:
        self.queues: dict[str, Queue] = {}
        self._passed = passed or {}
        """The runs that were passed over before the queue was read again."""
        self.explanations: Explanations | None = None
        """Replaced after each pass; other threads read it."""
        self.learned = Learned()
        self._gangs: dict[str, Gang] = {}
        self._forecasts: dict[str, FirstForecast] = {}
        self._kinds: dict[str, Traits] = {}
        """The traits of each queued run."""
        self._held: dict[str, Running] = {}
        """The runs that hold nodes, as of the last pass."""
        self._holders: dict[str, Holder] = {}
        self._without_forecast: set[str] = set()
        self.dependencies = Dependencies()
        self.environments = Environments()
        self._seen: int | None = None

    def update(self, transaction: Transaction) -> list[str]:
        """Apply the changes since the last call; returns the runs whose state changed (at first: none)."""
        if self._seen is None:
            return self._load(transaction)
        changed = transaction.execute(_CHANGES, {"seen": self._seen}).all()
        ids = sorted({row.run_id for row in changed})
        if changed:
            self._seen = max(row.id for row in changed)
            rows = {row.id: row for row in transaction.execute(_SOME, {"ids": ids})}
            for run_id in ids:
                self._put(run_id, rows.get(run_id))
        if transaction.execute(_COUNT).scalar() != len(self._gangs):
            # Nothing changes a run without an event: a defect of the server itself, which must not cost a run its turn.
            log.error("the queue did not match the database; it is read again")
            self._passed = self.all_passed()
            self._load(transaction)
        return ids

    def all_passed(self) -> dict[str, Passed]:
        """The runs passed over so far; callable from any thread."""
        return {run_id: item for queue in list(self.queues.values()) for run_id, item in queue.all_passed.items()}

    @property
    def has_waiting(self) -> bool:
        """Callable from any thread."""
        return bool(self._gangs)

    def first_waiting(self, cluster: str, most: int) -> list[Gang]:
        """Gangs that more nodes would help, as of the last pass; callable from any thread."""
        known = self.explanations
        return known.wants_nodes(cluster, most) if known is not None else []

    def running(self, transaction: Transaction, changed: Collection[str], now: float) -> list[Running]:
        """The gangs that hold nodes, each with its likely length; learns from those that have released theirs."""
        parts: dict[str, list[Part]] = {}
        rows: dict[str, Row[Any]] = {}
        for row in transaction.execute(_HOLDING):
            rows[row.run_id] = row
            parts.setdefault(row.run_id, []).append(
                Part(row.node, row.host, row.ranks, tuple(row.gpus), row.gpu_share or 1.0)
            )
        for run_id in self._held.keys() - rows.keys():
            holder = self._holders.pop(run_id, None)
            self.learned.let_go(self._held[run_id], holder.traits if holder else None, now)
        self.learned.note_ends(transaction, changed)
        unknown = sorted(rows.keys() - self._holders.keys())
        for row in transaction.execute(_SPECS, {"ids": unknown}) if unknown else ():
            traits = traits_of_run(row)
            self._holders[row.id] = Holder(traits, self.learned.length_of(row, traits))
        # Progress is only needed while others wait, and runs that have just started show little.
        begun = {row.run_id: row.number for row in rows.values() if now - (row.started_at or now) >= PROGRESS_FIRST_S}
        progress = load_progress(transaction, begun) if self._gangs and begun else {}
        resumed = sorted(row.run_id for row in rows.values() if row.number > 1 and row.checkpoints)
        earlier_s = load_earlier(transaction, resumed) if resumed else {}
        self._held = {
            run_id: _with_length(
                _running(row, tuple(parts[run_id]), now, earlier_s.get(run_id, 0.0)),
                self._holders.get(run_id),
                row.timeout_s,
                progress.get(run_id),
                now,
            )
            for run_id, row in rows.items()
        }
        return list(self._held.values())

    def with_shares(self, rules: Mapping[str, Rules], running: Sequence[Running], now: float) -> dict[str, Rules]:
        """The rules, with each waiting person's recent use of the cluster."""
        found = dict(rules)
        for name, queue in self.queues.items():
            users = {gang.user for gang in queue}
            if name in rules and len(users) > 1:
                mine = [item for item in running if item.cluster == name]
                found[name] = replace(rules[name], used=self.learned.ledger(name).with_running(mine, users, now))
        return found

    def note(
        self,
        transaction: Transaction,
        decision: Decision,
        capacity: Capacity,
        rules: Mapping[str, Rules],
        now: float,
    ) -> None:
        """Store which runs were passed over, compare starts with their forecasts, and make forecasts for new runs."""
        passed: dict[str, Passed | None] = {}
        for queue in self.queues.values():
            passed |= queue.note(decision)
        started = {start.run_id for start in decision.starts}
        waited_first = self.all_passed()
        keep_passed(transaction, passed | {run_id: None for run_id in started if run_id in waited_first})
        for run_id in started:
            self._begin(run_id, capacity.running[run_id], now)
        news: dict[str, FirstForecast] = {}
        for run_id in self._without_forecast - started:
            gang = self._gangs.get(run_id)
            if gang is None or run_id in self._forecasts:
                continue
            queue = self.queues[gang.cluster]
            held = run_id in decision.passed_over or run_id in rules[gang.cluster].held
            traits = wait_traits(gang, queue, decision.heads.get(gang.cluster), now, held)
            others_s = others_waited_s(gang, queue, now)
            first = self.learned.waits.interval(traits, now, now, others_s)
            news[run_id] = self._forecasts[run_id] = FirstForecast(traits, now, first, others_s)
        keep_forecasts(transaction, news)
        self._without_forecast.clear()

    def _begin(self, run_id: str, running: Running, now: float) -> None:
        forecast = self._forecasts.pop(run_id, None)
        if forecast is not None:
            self.learned.waits.learn(forecast.traits, forecast.since, now, forecast.first)
        gang = self._gangs[run_id]
        if gang.length is not None:
            # It may have ended by the next pass, but counts all the same.
            self._held[run_id] = running
            self._holders[run_id] = Holder(self._kinds[run_id], gang.length)

    def holding(self, run_id: str) -> Running | None:
        """A run that holds nodes, as of the last pass; callable from any thread."""
        return self._held.get(run_id)

    def starts_between(self, run_id: str, now: float) -> Interval | None:
        """When a queued run is likely to start; callable from any thread."""
        forecast = self._forecasts.get(run_id)
        if forecast is None:
            return None
        return self.learned.waits.interval(forecast.traits, forecast.since, now, forecast.others_s)

    def explain(self, decision: Decision, capacity: Capacity, rules: Mapping[str, Rules], now: float) -> None:
        """Keep the reasons why runs wait, for those who ask."""
        reasons = {run_id: why for run_id, why in decision.passed_over.items() if why}
        making_room = {item.for_run: item.run_id for item in decision.preemptions}
        for run_id, gone in making_room.items():
            reasons[run_id] = f"{capacity.running[gone].title} makes room" if gone in capacity.running else ""
        for cluster, head in decision.heads.items():
            gone = making_room.get(head.gang.run_id, "")
            title = capacity.running[gone].title if gone in capacity.running else ""
            passed = self.queues[cluster].passed(head.gang.run_id)
            reasons[head.gang.run_id] = head_reason(head, capacity, rules[cluster], now, title, passed)
        for cluster, rule in rules.items():
            if rule.closed:
                reasons |= {gang.run_id: rule.closed for gang in self.queues.get(cluster, ())}
        started = {start.run_id for start in decision.starts}
        self.explanations = Explanations(
            {
                name: [gang for gang in queue if gang.run_id not in started] if started else list(queue)
                for name, queue in self.queues.items()
            },
            self._gangs.get,
            decision.heads,
            reasons,
            frozenset(decision.passed_over),
            now,
        )

    def _load(self, transaction: Transaction) -> list[str]:
        self._seen = transaction.execute(_LAST_CHANGE).scalar() or 0
        self.learned = Learned()
        self.learned.load(transaction)
        self._gangs, self._forecasts, self._without_forecast = {}, {}, set()
        self._kinds, self._held, self._holders = {}, {}, {}
        self.dependencies, self.environments = Dependencies(), Environments()
        by_cluster: dict[str, list[Gang]] = {}
        passed: dict[str, Passed] = {}
        for row in transaction.execute(_WAITING):
            gang = self._gang(row)
            by_cluster.setdefault(gang.cluster, []).append(gang)
            if row.passed_over is not None:
                passed[row.id] = passed_of(row.passed_over)
        self.queues = {name: Queue(gangs, {**passed, **self._passed}) for name, gangs in by_cluster.items()}
        return []

    def _put(self, run_id: str, row: Any | None) -> None:
        old = self._gangs.pop(run_id, None)
        self._kinds.pop(run_id, None)
        self.dependencies.drop(run_id)
        self.environments.drop(run_id)
        if old is not None:
            self.queues[old.cluster].remove(old)
        if row is not None:
            gang = self._gang(row)
            passed = None if row.passed_over is None else passed_of(row.passed_over)
            self.queues.setdefault(gang.cluster, Queue()).add(gang, passed)

    def _gang(self, row: Any) -> Gang:
        """A queued run; only its first wait is forecast."""
        self.dependencies.put(row)
        self.environments.put(row)
        traits = self._kinds[row.id] = traits_of_run(row)
        gang = self._gangs[row.id] = gang_of(row, self.learned.length_of(row, traits))
        if row.forecast is not None and row.started_at is None:
            self._forecasts[row.id] = first_forecast(row.forecast)
        elif row.started_at is None:
            self._without_forecast.add(row.id)
        return gang


@dataclass
class RunsState:
    """The queue, and the workspace's defaults for runs."""

    queue: RunQueue = field(default_factory=RunQueue)
    """The waiting runs, with reasons."""
    builds: Builds = field(default_factory=Builds)
    """Environments that nodes build for waiting runs."""
    retry: Retry = field(default_factory=Retry)
    """The workspace's defaults of `retry` in a job file."""
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(3))
    """Held while logs are read in a thread."""

    unrecorded: Unrecorded = field(default_factory=Unrecorded)
    """Runs whose record in the store must be written again."""
    moved: dict[str, float] = field(default_factory=dict)
    """When each running run last printed or logged something."""
    since: float = field(default_factory=clock.now)
    """The time since when that is known."""

    def note_movement(self, run_id: str) -> None:
        """A run has printed or logged something; the oldest entry is dropped when there are too many."""
        self.moved.pop(run_id, None)
        self.moved[run_id] = clock.now()
        if len(self.moved) > _MOST_MOVED:
            del self.moved[next(iter(self.moved))]

    def read_queue(self) -> None:
        """Read the queue again from the database."""
        self.queue = RunQueue()

    def start_over(self) -> None:
        """Read the queue again: memory is wrong after a commit that failed.

        The counts of passed-over runs are kept: losing them would be worse than counting once too often.
        """
        self.queue = RunQueue(self.queue.all_passed())


def gang_of(row: Any, length: Length) -> Gang:
    """A queued run as the scheduler sees it; one that was requeued keeps its position."""
    return Gang(
        run_id=row.id,
        title=row.id,
        cluster=row.compute,
        need=Need(row.num_nodes, row.ranks_per_node, row.gpus_per_node, row.gpu_share or 1.0),
        priority=row.priority,
        queued_at=row.created_at,
        seq=row.seq,
        user=row.submitted_by or "",
        experiment=row.experiment,
        limit_s=row.timeout_s,
        not_before=row.retry_at or 0.0,
        excluded=frozenset(row.excluded_nodes or ()),
        preemptible=row.preemptible,
        apart=row.apart or "",
        length=length,
    )


def _with_length(
    running: Running, holder: Holder | None, limit_s: float | None, progress: Progress | None, now: float
) -> Running:
    if holder is None:
        return running
    length = of_attempt(holder.length, limit_s, running.before_s)
    return replace(running, length=with_progress(length, running.elapsed_s(now), progress))


def _running(row: Any, parts: tuple[Part, ...], now: float, before_s: float) -> Running:
    since = row.started_at or row.created_at
    until = UNKNOWN if row.timeout_s is None else since + row.timeout_s + START_MARGIN_S
    return Running(
        run_id=row.run_id,
        title=row.run_id,
        cluster=row.cluster,
        parts=parts,
        until=now + GRACE_CANCEL_S if row.stop_reason else until,
        since=since,
        priority=row.priority,
        order=(row.submitted_at - row.priority * PRIORITY_HEADSTART_S, row.seq),
        preemptible=row.preemptible,
        user=row.submitted_by or "",
        experiment=row.experiment,
        stopping=bool(row.stop_reason),
        before_s=before_s,
        checkpoints=row.checkpoints,
        apart=row.apart or "",
    )
