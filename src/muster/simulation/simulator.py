"""A cluster's month in a minute: the scheduler's own code over given jobs, with node failures and preemptions."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.control.estimates.book import Traits
from muster.control.estimates.runs import Estimates
from muster.control.estimates.waits import Interval, Waits
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import HIGH, MEDIUM, Decision, Gang, Node, Part, Rules, Running, Start
from muster.control.scheduling.outlook import others_waited_s, wait_traits
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.simulation.jobs import CLUSTER, DAY_S, Job, Machines, Outcome, gpu_hour_wait_s

_CHECKPOINT_S = 1800.0
_TICK_S = 30.0
_REPAIR_S = 4 * 3600.0
_SLOTS = 96
_BREAKS, _HOUR = -1, -2
_LATER_S = 3600.0


@dataclass(frozen=True)
class Policy:
    """How the queue is scheduled."""

    name: str
    limits: bool = True
    """Jobs declare their time limits."""
    estimates: bool = True
    """Lengths are learned."""
    backfill: bool = True
    priorities: bool = True
    shortest_first: bool = False
    preemption: bool = False


MUSTER = Policy("Muster, with limits")
WITHOUT_LIMITS = Policy("Muster, without limits", limits=False)
LIMITS_ALONE = Policy("limits alone", estimates=False)
FIFO = Policy("first in, first out", estimates=False, backfill=False, priorities=False)
SHORTEST = Policy("shortest first", estimates=False, backfill=False, priorities=False, shortest_first=True)
POLICIES = {
    "muster": WITHOUT_LIMITS,
    "muster-limits": MUSTER,
    "limits-alone": LIMITS_ALONE,
    "fifo": FIFO,
    "shortest": SHORTEST,
}
"""By the names that users give."""


def simulate(machines: Machines, jobs: Sequence[Job], policy: Policy) -> Outcome:
    """Run the jobs under a policy until the last one has started."""
    return _Simulation(machines, jobs, policy).run()


@dataclass(frozen=True)
class _Told:
    """The first forecast of a waiting job."""

    traits: Traits
    since: float
    first: Interval
    others_s: float
    """How long others had waited at that time."""


class _Simulation:
    """The clock, the events, and the cluster that they change."""

    def __init__(self, machines: Machines, jobs: Sequence[Job], policy: Policy) -> None:
        self._machines = machines
        self._jobs = jobs
        self._policy = policy
        self._rules = {CLUSTER: Rules(backfill=policy.backfill, preemption=policy.preemption)}
        gpus = tuple(str(index) for index in range(machines.gpus_per_node))
        nodes = [Node(f"n{index}", f"n{index}", "", _SLOTS, gpus) for index in range(machines.num_nodes)]
        self._capacity = Capacity({CLUSTER: nodes})
        self._queue = Queue()
        self._estimates = Estimates()
        self._gangs: dict[str, Gang] = {}
        self._waits = Waits()
        self._arrived: list[str] = []
        self._told: dict[str, _Told] = {}
        self._left_s = [job.run_s for job in jobs]
        self._number = {job.gang.run_id: number for number, job in enumerate(jobs)}
        self._began: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._holders: dict[str, set[str]] = {node.name: set() for node in nodes}
        self._events: list[tuple[float, int, str, int]] = []
        self._busy_gpus = 0.0
        self._gpu_s = 0.0
        self._undone_gpu_s = 0.0
        self._clock = 0.0
        self.outcome = Outcome(policy.name, [-1.0] * len(jobs))

    def run(self) -> Outcome:
        self._plan_events()
        horizon = self._machines.days * DAY_S
        waiting = len(self._jobs)
        while self._events and (waiting or self._clock < horizon):
            tick = (int(self._events[0][0] / _TICK_S) + 1) * _TICK_S
            while self._events and self._events[0][0] <= tick:
                at, _, name, attempt = heapq.heappop(self._events)
                self._advance(min(at, horizon))
                self._happen(at, name, attempt)
            waiting -= self._pass(tick)
        self._advance(horizon)
        self.outcome.use = (self._gpu_s - self._undone_gpu_s) / (self._machines.num_gpus * horizon)
        waits_s, per_node = self.outcome.waits_s, self._machines.gpus_per_node
        self.outcome.gpu_hour_wait_s = gpu_hour_wait_s(self._jobs, waits_s, per_node)
        return self.outcome

    def _plan_events(self) -> None:
        dice = random.Random(self._machines.seed + 1)
        for job in self._jobs:
            self._events.append((job.gang.queued_at, len(self._events), job.gang.run_id, 0))
        mean_s = self._machines.mean_days_between_failures * DAY_S
        for node in self._holders if math.isfinite(mean_s) else ():
            at = dice.expovariate(1 / mean_s)
            while at < self._machines.days * DAY_S:
                self._events.append((at, len(self._events), node, _BREAKS))
                at += _REPAIR_S + dice.expovariate(1 / mean_s)
        for hour in range(int(self._machines.days * 24)):
            self._events.append((hour * 3600.0, len(self._events), "", _HOUR))
        heapq.heapify(self._events)

    def _advance(self, now: float) -> None:
        if now > self._clock:
            self._gpu_s += self._busy_gpus * (now - self._clock)
            self._clock = now

    def _happen(self, at: float, name: str, attempt: int) -> None:
        if attempt == _HOUR:
            self.outcome.timeline.append((at / DAY_S, self._busy_gpus / self._machines.num_gpus, len(self._queue)))
        elif attempt == _BREAKS:
            self._break(at, name)
        elif name.startswith("repaired "):
            self._capacity.let_go(name)
        elif attempt == 0:
            self._arrive(self._jobs[self._number[name]])
        elif self._attempts.get(name) == attempt:
            self._release(name)
            job = self._jobs[self._number[name]]
            self._estimates.learn(job.traits, job.run_s, self._gangs[name].limit_s, job.gang.user)

    def _arrive(self, job: Job) -> None:
        gang, policy = job.gang, self._policy
        if not policy.priorities:
            gang = replace(gang, priority=MEDIUM, preemptible=False)
        if policy.shortest_first:
            gang = replace(gang, queued_at=gang.limit_s or 0.0)
        if not policy.limits:
            gang = replace(gang, limit_s=None)
        if policy.estimates:
            gang = replace(gang, length=self._estimates.length(job.traits, gang.limit_s, gang.user))
        self._gangs[gang.run_id] = gang
        self._queue.add(gang)
        self._arrived.append(gang.run_id)

    def _break(self, at: float, node: str) -> None:
        """A node fails: its gangs return to the queue, and it is away until it is repaired."""
        self.outcome.failures += 1
        for run_id in sorted(self._holders[node]):
            self._requeue(run_id, at)
        pool = self._capacity.pool_of(node)
        assert pool is not None
        part = Part(node, node, _SLOTS, tuple(pool.free_gpus))
        name = f"repaired {node} {at}"
        self._capacity.hold(Running(name, name, CLUSTER, (part,), until=at + _REPAIR_S, priority=HIGH))
        heapq.heappush(self._events, (at + _REPAIR_S, len(self._events), name, 1))

    def _pass(self, now: float) -> int:
        """One pass of the scheduler; returns how many jobs started for the first time."""
        self.outcome.passes += 1
        decision = schedule({CLUSTER: self._queue}, self._capacity, self._rules, now)
        self._queue.note(decision)
        first = 0
        for start in decision.starts:
            first += self._start(start, now)
        if self._policy.estimates:
            self._tell(decision, now)
        for preempt in decision.preemptions:
            self.outcome.preemptions += 1
            self._requeue(preempt.run_id, now)
        if decision.preemptions:
            first += self._pass(now)
        return first

    def _start(self, start: Start, now: float) -> int:
        run_id = start.run_id
        number = self._number[run_id]
        self._queue.remove(self._gangs[run_id])
        self._began[run_id] = now
        self._attempts[run_id] = self._attempts.get(run_id, 0) + 1
        for place in start.places:
            self._holders[place.node.name].add(run_id)
        self._busy_gpus += self._capacity.running[run_id].num_gpus
        end = now + self._left_s[number]
        heapq.heappush(self._events, (end, len(self._events), run_id, self._attempts[run_id]))
        if self.outcome.waits_s[number] >= 0:
            return 0
        self.outcome.waits_s[number] = now - self._jobs[number].gang.queued_at
        if run_id in self._told:
            self._check(self._told.pop(run_id), now)
        return 1

    def _tell(self, decision: Decision, now: float) -> None:
        """Give a first forecast to the jobs that have just arrived and could not start."""
        for run_id in self._arrived:
            gang = self._gangs[run_id]
            if self.outcome.waits_s[self._number[run_id]] < 0:
                traits = wait_traits(gang, self._queue, decision.heads.get(CLUSTER), now)
                others_s = others_waited_s(gang, self._queue, now)
                first = self._waits.interval(traits, now, now, others_s)
                self._told[run_id] = _Told(traits, now, first, others_s)
        self._arrived.clear()

    def _check(self, told: _Told, began: float) -> None:
        self.outcome.forecasts += 1
        self.outcome.held += told.first.holds(began)
        if began > told.since + _LATER_S:
            later = self._waits.interval(told.traits, told.since, told.since + _LATER_S, told.others_s)
            self.outcome.later_forecasts += 1
            self.outcome.later_held += later.holds(began)
        self._waits.learn(told.traits, told.since, began, told.first)

    def _requeue(self, run_id: str, now: float) -> None:
        """It resumes later from its last checkpoint."""
        number = self._number[run_id]
        ran_s = now - self._began[run_id]
        kept_s = math.floor(ran_s / _CHECKPOINT_S) * _CHECKPOINT_S
        self._undone_gpu_s += (ran_s - kept_s) * self._capacity.running[run_id].num_gpus
        self._left_s[number] = max(30.0, self._left_s[number] - kept_s)
        self._release(run_id)
        self._attempts[run_id] += 1
        self._queue.add(self._gangs[run_id])

    def _release(self, run_id: str) -> None:
        running = self._capacity.running[run_id]
        for part in running.parts:
            self._holders[part.node].discard(run_id)
        self._busy_gpus -= running.num_gpus
        self._capacity.let_go(run_id)
