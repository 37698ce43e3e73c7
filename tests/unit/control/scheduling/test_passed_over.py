"""Whatever the estimates say, nobody is passed over more often, or for longer, than is promised."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.scheduling.conftest import capacity, cluster, gang

from muster.control.estimates.length import Length, log_normal
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import UNKNOWN, Decision, Gang, Head, Rules
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Passed, Queue

HOUR_S, DAY_S = 3600.0, 86_400.0


@dataclass(frozen=True)
class Arrival:
    """A gang that comes so long after the one before it; what is believed of its length may be wrong."""

    gap_s: float
    nodes: int
    ranks: int
    real_s: float
    wrong_by: float
    is_limited: bool


arrivals = st.builds(
    Arrival,
    gap_s=st.sampled_from([0.0, 60.0, HOUR_S, 8 * HOUR_S, DAY_S]),
    nodes=st.integers(1, 3),
    ranks=st.integers(1, 2),
    real_s=st.sampled_from([60.0, HOUR_S, 8 * HOUR_S, DAY_S, 10 * DAY_S]),
    wrong_by=st.sampled_from([0.001, 1.0, 1000.0]),
    is_limited=st.booleans(),
)


@dataclass
class Workload:
    """Plays a workload pass by pass, and counts by itself who passes whom."""

    most: int
    free: Capacity = field(default_factory=lambda: capacity(cluster(3)))
    queue: Queue = field(default_factory=Queue)
    passed: dict[str, int] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    """When those who were closed must start, with the queue in which they were so."""
    began: dict[str, float] = field(default_factory=dict)
    closed_at: dict[str, float] = field(default_factory=dict)

    def play(self, coming: list[Arrival]) -> None:
        events: list[tuple[float, int, str]] = []
        gangs: dict[str, Gang] = {}
        now = 0.0
        for number, item in enumerate(coming):
            now += item.gap_s
            length = Length(log_normal(max(1.0, item.real_s * item.wrong_by), 0.3))
            limit_s = 1.5 * item.real_s if item.is_limited else None
            name = f"g{number}"
            gangs[name] = gang(name, item.nodes, item.ranks, seq=number, queued_at=now, length=length, limit_s=limit_s)
            heapq.heappush(events, (now, 0, name))
        ends: dict[str, float] = {}
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, is_end, name = heapq.heappop(events)
                if is_end:
                    self.free.let_go(name)
                else:
                    self.queue.add(gangs[name])
                    self._forgive(gangs[name])
            decision = schedule({"c": self.queue}, self.free, {"c": Rules(max_passed_over=self.most)}, now)
            for start in decision.starts:
                ends[start.run_id] = now + coming[gangs[start.run_id].seq].real_s
                heapq.heappush(events, (ends[start.run_id], 1, start.run_id))
                self.began[start.run_id] = now
            self._check(decision, gangs, ends, now)
            self.queue.note(decision)
            for start in decision.starts:
                self.queue.remove(gangs[start.run_id])

    def _check(self, decision: Decision, gangs: dict[str, Gang], ends: dict[str, float], now: float) -> None:
        head = decision.heads.get("c")
        if head is None:
            return
        name = head.gang.run_id
        for start in decision.starts:
            other = gangs[start.run_id]
            on_kept = any(place.node.name in head.pools for place in start.places)
            is_promise = head.starts_by != UNKNOWN and other.until(now) <= head.starts_by
            if other.order > head.gang.order and on_kept and not is_promise:
                assert now < head.closes_at
                assert name not in self.closed_at
                self.passed[name] = self.passed.get(name, 0) + 1
        assert self.passed.get(name, 0) <= self.most * head.gang.need.nodes
        if head.is_closed(now) and name not in self.closed_at:
            self.closed_at[name] = now
            self.latest[name] = self._latest(head, ends, now)

    def _latest(self, head: Head, ends: dict[str, float], now: float) -> float:
        holders = self.free.holders(head.pools)
        return max(
            (max(ends[item.run_id], item.until if item.until != UNKNOWN else 0.0) for item in holders), default=now
        )

    def _forgive(self, newcomer: Gang) -> None:
        """Who comes before another by right may take its nodes."""
        for name in [name for name in self.latest if name not in self.began]:
            waiting = next(item for item in self.queue if item.run_id == name)
            if newcomer.order < waiting.order:
                del self.latest[name]


@settings(max_examples=150, deadline=None)
@given(st.lists(arrivals, max_size=40), st.integers(0, 4))
def test_nobody_is_passed_over_more_often_or_for_longer_than_is_promised(coming, most):
    workload = Workload(most)
    workload.play(coming)
    assert workload.began.keys() == {f"g{number}" for number in range(len(coming))}
    for name, at in workload.latest.items():
        assert workload.began[name] <= at


def test_the_bound_is_reached_and_then_holds():
    """One node is held for ten days; each hour somebody comes who claims to take a minute, and takes an hour."""
    first = Arrival(0.0, 1, 2, 10 * DAY_S, 1.0, False)
    wide = Arrival(60.0, 3, 2, 60.0, 1.0, False)
    liars = [Arrival(HOUR_S, 1, 2, HOUR_S, 0.01, False)] * 30
    workload = Workload(most=4)
    workload.play([first, wide, *liars])
    assert workload.passed["g1"] == 12
    assert workload.began["g1"] == workload.latest["g1"] == 10 * DAY_S


def test_where_nobody_may_be_passed_over_only_those_who_promise_to_end_in_time_are_let_in():
    first = Arrival(0.0, 1, 2, DAY_S, 1.0, True)
    wide = Arrival(60.0, 3, 2, 60.0, 1.0, False)
    promising, other = Arrival(60.0, 1, 2, HOUR_S, 1.0, True), Arrival(60.0, 1, 2, 60.0, 1.0, False)
    workload = Workload(most=0)
    workload.play([first, wide, promising, other])
    assert workload.passed == {}
    assert workload.began["g2"] == 120.0
    assert workload.began["g3"] > workload.began["g1"]


def test_what_was_counted_is_kept_with_a_run_that_is_put_into_a_queue():
    queue = Queue()
    queue.add(gang("a"), Passed(3, frozenset({"c-0"}), 10.0, 20.0))
    assert queue.passed("a").times == 3
