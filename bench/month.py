"""A cluster's month in a minute: the scheduler's own code over made-up jobs, node failures and preemptions."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import HIGH, LOW, MEDIUM, Gang, Need, Node, Part, Rules, Running, Start
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue

DAY_S = 86_400.0
Policy = Literal["muster", "fifo", "shortest"]
_CLUSTER = "sim"
_CHECKPOINT_S = 1800.0
_TICK_S = 30.0
_REPAIR_S = 4 * 3600.0


@dataclass(frozen=True)
class Month:
    """The size of the made-up cluster and of what it is asked to do."""

    num_jobs: int = 100_000
    num_nodes: int = 1000
    gpus_per_node: int = 8
    days: float = 30.0
    load: float = 0.9
    """Work that is submitted, as a share of what the nodes could do."""
    mean_days_between_failures: float = 60.0
    """Of one node."""
    seed: int = 7


@dataclass(frozen=True)
class Job:
    gang: Gang
    run_s: float
    """How long it really takes; its declared limit is longer."""


@dataclass
class Outcome:
    """What became of the month under one policy."""

    policy: Policy
    waits_s: list[float] = field(default_factory=list)
    """Of each job from its arrival to its first start, in the order of arrival."""
    utilisation: float = 0.0
    """Busy GPUs over all days, without the work that failures and preemptions undid."""
    failures: int = 0
    preemptions: int = 0
    passes: int = 0
    timeline: list[tuple[float, float, int]] = field(default_factory=list)
    """(day, share of busy GPUs, gangs in the queue), every hour."""

    @property
    def mean_wait_s(self) -> float:
        return sum(self.waits_s) / len(self.waits_s)

    def wait_s(self, share: float) -> float:
        """The wait that so many of the jobs do not exceed."""
        return sorted(self.waits_s)[min(len(self.waits_s) - 1, int(share * len(self.waits_s)))]


def make_jobs(month: Month) -> list[Job]:
    """Jobs with heavy-tailed sizes and lengths, busier by day than by night and at the weekend."""
    dice = random.Random(month.seed)
    arrivals = sorted(_arrival(dice, month.days) for _ in range(month.num_jobs))
    needs = [_need(dice, month) for _ in arrivals]
    lengths = [min(dice.lognormvariate(0.0, 1.6), 60.0) for _ in arrivals]
    work = sum(_gpus(need, month) * length for need, length in zip(needs, lengths, strict=True))
    scale = month.load * month.num_nodes * month.gpus_per_node * month.days * DAY_S / work
    jobs = []
    for number, (at, need, length) in enumerate(zip(arrivals, needs, lengths, strict=True)):
        run_s = max(30.0, length * scale)
        limit_s = _rounded(run_s * dice.uniform(1.1, 3.0))
        priority = dice.choices((LOW, MEDIUM, HIGH), (0.3, 0.6, 0.1))[0]
        gang = Gang(f"j{number}", f"j{number}", _CLUSTER, need, priority, at, number, limit_s=limit_s)
        jobs.append(Job(replace(gang, preemptible=priority == LOW), run_s))
    return jobs


def simulate(month: Month, jobs: Sequence[Job], policy: Policy) -> Outcome:
    """Run the month under a policy until its last job has started."""
    return _Simulation(month, jobs, policy).run()


def _arrival(dice: random.Random, days: float) -> float:
    while True:
        at = dice.uniform(0.0, days)
        by_day = 0.6 + 0.4 * math.sin(2 * math.pi * (at % 1.0 - 0.3))
        if dice.random() < by_day * (0.5 if int(at) % 7 in (5, 6) else 1.0):
            return at * DAY_S


def _need(dice: random.Random, month: Month) -> Need:
    if dice.random() < 0.6:
        gpus = dice.choice([size for size in (1, 1, 2, 4) if size <= month.gpus_per_node])
        return Need(1, gpus, gpus)
    # Whole nodes: half as many gangs with each doubling.
    most = max(1, month.num_nodes // 8)
    nodes = min(most, 2 ** int(min(7.0, dice.expovariate(math.log(2.0)))))
    return Need(nodes, month.gpus_per_node, None)


def _gpus(need: Need, month: Month) -> int:
    return need.nodes * (month.gpus_per_node if need.gpus is None else need.gpus)


def _rounded(limit_s: float) -> float:
    """People ask for round figures."""
    step = 600.0 if limit_s < 3600 else 3600.0 if limit_s < DAY_S else 6 * 3600.0
    return math.ceil(limit_s / step) * step


class _Simulation:
    """The clock, the events, and the cluster that they happen to."""

    def __init__(self, month: Month, jobs: Sequence[Job], policy: Policy) -> None:
        self._month = month
        self._jobs = [replace(job, gang=_for_policy(job.gang, policy)) for job in jobs]
        self._rules = {_CLUSTER: Rules(backfill=policy == "muster")}
        gpus = tuple(str(index) for index in range(month.gpus_per_node))
        nodes = [Node(f"n{index}", f"n{index}", "", 96, gpus) for index in range(month.num_nodes)]
        self._capacity = Capacity({_CLUSTER: nodes})
        self._queue = Queue()
        self._left_s = [job.run_s for job in self._jobs]
        self._number = {job.gang.run_id: number for number, job in enumerate(self._jobs)}
        self._began: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._holders: dict[str, set[str]] = {node.name: set() for node in nodes}
        self._events: list[tuple[float, int, str, int]] = []
        self._busy_gpus = 0
        self._gpu_s = 0.0
        self._undone_gpu_s = 0.0
        self._clock = 0.0
        self.outcome = Outcome(policy, [-1.0] * len(self._jobs))

    def run(self) -> Outcome:
        self._plan_events()
        horizon = self._month.days * DAY_S
        waiting = len(self._jobs)
        while self._events and (waiting or self._clock < horizon):
            tick = (int(self._events[0][0] / _TICK_S) + 1) * _TICK_S
            while self._events and self._events[0][0] <= tick:
                at, _, name, attempt = heapq.heappop(self._events)
                self._advance(min(at, horizon))
                self._happen(at, name, attempt)
            waiting -= self._pass(tick)
        self._advance(horizon)
        total = self._month.num_nodes * self._month.gpus_per_node * horizon
        self.outcome.utilisation = (self._gpu_s - self._undone_gpu_s) / total
        return self.outcome

    def _plan_events(self) -> None:
        dice = random.Random(self._month.seed + 1)
        for number, job in enumerate(self._jobs):
            arrives_at = self._arrives_at(number)
            self._events.append((arrives_at, len(self._events), job.gang.run_id, 0))
        mean_s = self._month.mean_days_between_failures * DAY_S
        for node in self._holders:
            at = dice.expovariate(1 / mean_s)
            while at < self._month.days * DAY_S:
                self._events.append((at, len(self._events), node, -1))
                at += _REPAIR_S + dice.expovariate(1 / mean_s)
        for hour in range(int(self._month.days * 24)):
            self._events.append((hour * 3600.0, len(self._events), "", -2))
        heapq.heapify(self._events)

    def _arrives_at(self, number: int) -> float:
        return self._jobs[number].gang.not_before

    def _advance(self, now: float) -> None:
        if now > self._clock:
            self._gpu_s += self._busy_gpus * (now - self._clock)
            self._clock = now

    def _happen(self, at: float, name: str, attempt: int) -> None:
        if attempt == -2:
            share = self._busy_gpus / (self._month.num_nodes * self._month.gpus_per_node)
            self.outcome.timeline.append((at / DAY_S, share, len(self._queue)))
        elif attempt == -1:
            self._break(at, name)
        elif name.startswith("repaired "):
            self._capacity.let_go(name)
        elif attempt == 0:
            self._queue.add(self._jobs[self._number[name]].gang)
        elif self._attempts.get(name) == attempt:
            self._release(name)

    def _break(self, at: float, node: str) -> None:
        """A node fails: its gangs go back to the queue, and it is away until it is repaired."""
        self.outcome.failures += 1
        for run_id in sorted(self._holders[node]):
            self._requeue(run_id, at)
        pool = self._capacity.pool_of(node)
        assert pool is not None
        part = Part(node, node, 96, tuple(pool.free_gpus))
        name = f"repaired {node} {at}"
        self._capacity.hold(Running(name, name, _CLUSTER, (part,), until=at + _REPAIR_S, priority=HIGH))
        heapq.heappush(self._events, (at + _REPAIR_S, len(self._events), name, 1))

    def _pass(self, now: float) -> int:
        """One pass of the scheduler; returns how many jobs started for the first time."""
        self.outcome.passes += 1
        decision = schedule({_CLUSTER: self._queue}, self._capacity, self._rules, now)
        first = 0
        for start in decision.starts:
            first += self._start(start, now)
        for preempt in decision.preemptions:
            self.outcome.preemptions += 1
            self._requeue(preempt.run_id, now)
        if decision.preemptions:
            first += self._pass(now)
        return first

    def _start(self, start: Start, now: float) -> int:
        run_id = start.run_id
        number = self._number[run_id]
        self._queue.remove(self._jobs[number].gang)
        self._began[run_id] = now
        self._attempts[run_id] = self._attempts.get(run_id, 0) + 1
        for place in start.places:
            self._holders[place.node.name].add(run_id)
        self._busy_gpus += self._capacity.running[run_id].num_gpus
        end = now + self._left_s[number]
        heapq.heappush(self._events, (end, len(self._events), run_id, self._attempts[run_id]))
        if self.outcome.waits_s[number] >= 0:
            return 0
        self.outcome.waits_s[number] = now - self._arrives_at(number)
        return 1

    def _requeue(self, run_id: str, now: float) -> None:
        """It resumes later from its last checkpoint."""
        number = self._number[run_id]
        ran_s = now - self._began[run_id]
        kept_s = math.floor(ran_s / _CHECKPOINT_S) * _CHECKPOINT_S
        self._undone_gpu_s += (ran_s - kept_s) * self._capacity.running[run_id].num_gpus
        self._left_s[number] = max(30.0, self._left_s[number] - kept_s)
        self._release(run_id)
        self._attempts[run_id] += 1
        self._queue.add(self._jobs[number].gang)

    def _release(self, run_id: str) -> None:
        running = self._capacity.running[run_id]
        for part in running.parts:
            self._holders[part.node].discard(run_id)
        self._busy_gpus -= running.num_gpus
        self._capacity.let_go(run_id)


def _for_policy(gang: Gang, policy: Policy) -> Gang:
    """Plain policies know no priorities; shortest-first orders by the declared limit. `not_before` is the arrival."""
    arrival = gang.queued_at
    if policy == "fifo":
        gang = replace(gang, priority=MEDIUM, preemptible=False)
    elif policy == "shortest":
        gang = replace(gang, priority=MEDIUM, preemptible=False, queued_at=gang.limit_s or 0.0)
    return replace(gang, not_before=arrival)
