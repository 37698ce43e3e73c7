"""The scheduler's queue: every queued run in memory, kept in step with the database by its own record of changes.

A pass reads the changes of state since the last one, never the whole queue. Whatever goes wrong, a new queue is read
from the database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, and_, bindparam, func, select

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.explain import Explanations, Volume, head_reason
from muster.control.scheduling.model import UNKNOWN, Decision, Gang, Need, Part, Rules, Running
from muster.control.scheduling.queue import Queue
from muster.defaults import GRACE_CANCEL_S, PRIORITY_HEADSTART_S, START_MARGIN_S
from muster.host import clock
from muster.job.parts import Retry
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.runs.record_files import Unrecorded
from muster.wire import states

_RUNS, _EVENTS = tables.runs, tables.events
_WAITING = select(
    *_RUNS.c["id", "seq", "experiment", "submitted_by", "compute", "priority", "created_at", "num_nodes"],
    *_RUNS.c["ranks_per_node", "gpus_per_node", "timeout_s", "preemptible", "retry_at", "excluded_nodes"],
).where(_RUNS.c.status == states.QUEUED)
_SOME = _WAITING.where(_RUNS.c.id.in_(bindparam("ids", expanding=True)))
_COUNT = select(func.count()).select_from(_RUNS).where(_RUNS.c.status == states.QUEUED)
_CHANGES = select(_EVENTS.c.id, _EVENTS.c.run_id).where(_EVENTS.c.id > bindparam("seen"), _EVENTS.c.kind == "state")
_LAST_CHANGE = select(func.max(_EVENTS.c.id))


def _holding() -> Any:
    placements, attempts = tables.placements, tables.attempts
    mine = and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number)
    return (
        select(
            *placements.c["run_id", "cluster", "node", "host", "ranks", "gpus"],
            *attempts.c["created_at", "started_at", "stop_reason"],
            *_RUNS.c["seq", "priority", "timeout_s", "preemptible", "submitted_by", "experiment"],
            _RUNS.c.created_at.label("submitted_at"),
        )
        .join(_RUNS, _RUNS.c.id == placements.c.run_id)
        .join(attempts, mine)
        .where(placements.c.phase.in_(states.HOLDS_RESOURCES))
    )


_HOLDING = _holding()


class RunQueue:
    """What waits, and what the last pass found out about it."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.explanations: Explanations | None = None
        """Replaced after each pass; other threads read it."""
        self._gangs: dict[str, Gang] = {}
        self._seen: int | None = None

    def update(self, transaction: Transaction) -> list[str]:
        """Take in what changed; returns the runs whose state did (at first: none)."""
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
            # Somebody changed a run without saying so: start over.
            self._load(transaction)
        return ids

    def first_waiting(self, cluster: str, most: int) -> list[Gang]:
        """Gangs that nodes would help, as the last pass saw them; callable from any thread."""
        known = self.explanations
        return known.wants_nodes(cluster, most) if known is not None else []

    def explain(self, decision: Decision, capacity: Capacity, rules: dict[str, Rules], now: float) -> None:
        """Keep why everybody waits, for those who ask."""
        reasons = {run_id: why for run_id, why in decision.passed_over.items() if why}
        making_room = {item.for_run: item.run_id for item in decision.preemptions}
        for cluster, head in decision.heads.items():
            gone = making_room.get(head.gang.run_id, "")
            title = capacity.running[gone].title if gone in capacity.running else ""
            reasons[head.gang.run_id] = head_reason(head, capacity, rules[cluster], title)
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
            {name: Volume.of(name, capacity, now) for name in decision.heads},
            frozenset(decision.passed_over),
            now,
        )

    def _load(self, transaction: Transaction) -> list[str]:
        self._seen = transaction.execute(_LAST_CHANGE).scalar() or 0
        self._gangs = {row.id: gang_of(row) for row in transaction.execute(_WAITING)}
        by_cluster: dict[str, list[Gang]] = {}
        for gang in self._gangs.values():
            by_cluster.setdefault(gang.cluster, []).append(gang)
        self.queues = {name: Queue(gangs) for name, gangs in by_cluster.items()}
        return []

    def _put(self, run_id: str, row: Any | None) -> None:
        old = self._gangs.pop(run_id, None)
        if old is not None:
            self.queues[old.cluster].remove(old)
        if row is not None:
            gang = self._gangs[run_id] = gang_of(row)
            self.queues.setdefault(gang.cluster, Queue()).add(gang)


@dataclass
class RunsState:
    """The queue, and the workspace's defaults for runs."""

    queue: RunQueue = field(default_factory=RunQueue)
    """What waits, and why."""
    retry: Retry = field(default_factory=Retry)
    """The workspace's defaults of `retry` in a job file."""

    unrecorded: Unrecorded = field(default_factory=Unrecorded)
    """Whose record in the store is to be written again."""

    def start_over(self) -> None:
        """Read the queue anew: what was remembered of a commit that failed is not true."""
        self.queue = RunQueue()


def gang_of(row: Any) -> Gang:
    """A queued run as the scheduler sees it; one that was put back keeps its place."""
    return Gang(
        run_id=row.id,
        title=row.id,
        cluster=row.compute,
        need=Need(row.num_nodes, row.ranks_per_node, row.gpus_per_node),
        priority=row.priority,
        queued_at=row.created_at,
        seq=row.seq,
        user=row.submitted_by or "",
        experiment=row.experiment,
        limit_s=row.timeout_s,
        not_before=row.retry_at or 0.0,
        excluded=frozenset(row.excluded_nodes or ()),
        preemptible=row.preemptible,
    )


def load_running(transaction: Transaction) -> list[Running]:
    """The gangs that hold nodes."""
    parts: dict[str, list[Part]] = {}
    rows: dict[str, Row[Any]] = {}
    for row in transaction.execute(_HOLDING):
        rows[row.run_id] = row
        parts.setdefault(row.run_id, []).append(Part(row.node, row.host, row.ranks, tuple(row.gpus)))
    return [_running(row, tuple(parts[run_id]), clock.now()) for run_id, row in rows.items()]


def _running(row: Any, parts: tuple[Part, ...], now: float) -> Running:
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
    )
