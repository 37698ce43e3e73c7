"""Whatever the estimates say, nobody is passed over for longer than is promised."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.scheduling.conftest import capacity, cluster, gang, running

from muster.control.estimates.length import Length, log_normal
from muster.control.scheduling.model import HIGH, LOW
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.control.scheduling.shares import standings
from muster.defaults import LATE_S, LATE_SHARE

STEP_S = 3600.0
DAY_S = 86_400.0
LONGEST_S = 2 * DAY_S
lengths_s = st.floats(60.0, LONGEST_S)


@dataclass
class Story:
    """What became of a gang of two nodes behind which others keep coming."""

    began_at: float
    due_at: float
    passed: int
    starts: list[tuple[float, str]]


def play(held_s: tuple[float, float], claimed_s: list[float], real_s: list[float]) -> Story:
    """Two nodes are held for so long; each hour a gang comes that claims one length and takes another."""
    nodes = cluster(2, cpus=2)
    believed = Length(log_normal(7200.0, 1.0))
    holders = [running(f"h{number}", node, ranks=2, since=-60.0, length=believed) for number, node in enumerate(nodes)]
    free = capacity(nodes, *holders)
    ends = {f"h{number}": seconds for number, seconds in enumerate(held_s)}
    # Nobody who comes later counts as before it because it is shorter.
    wide = gang("wide", nodes=2, ranks=2, length=Length(log_normal(1.0, 0.1)))
    queue, now, number = Queue([wide]), 0.0, 0
    starts: list[tuple[float, str]] = []
    due_at, passed = float("inf"), 0
    while True:
        for name in [name for name, at in ends.items() if at <= now]:
            free.let_go(name)
            del ends[name]
        liar = gang(f"liar{number}", ranks=2, seq=number + 1, queued_at=now, length=_claim(claimed_s, number))
        queue.add(liar)
        known = {item.run_id: item for item in queue}
        decision = schedule({"c": queue}, free, {}, now)
        queue.note(decision)
        head = decision.heads.get("c")
        if head is not None and head.gang is wide:
            due_at, passed = head.due_at, queue.passed("wide").times
        for start in decision.starts:
            starts.append((now, start.run_id))
            if start.run_id == "wide":
                return Story(now, due_at, passed, starts)
            queue.remove(known[start.run_id])
            ends[start.run_id] = now + real_s[number % len(real_s)]
        now, number = now + STEP_S, number + 1
        assert now < 60 * 86_400.0, "it starves"


def _claim(claimed_s: list[float], number: int) -> Length:
    return Length(log_normal(claimed_s[number % len(claimed_s)], 0.3))


@settings(max_examples=40)
@given(st.tuples(lengths_s, lengths_s), st.lists(lengths_s, min_size=1, max_size=5), st.lists(lengths_s, min_size=1))
def test_a_gang_starts_in_time_however_wrong_the_estimates_are(held_s, claimed_s, real_s):
    story = play(held_s, claimed_s, real_s)
    first_come_s = max(held_s) + STEP_S
    closes_s = first_come_s + LATE_S + LATE_SHARE * first_come_s
    assert story.began_at <= closes_s + LONGEST_S + STEP_S
    assert all(at < closes_s for at, name in story.starts if name != "wide")


def test_those_who_claim_to_be_short_and_are_long_pass_until_the_bound_and_not_after():
    story = play((7200.0, 2 * 86_400.0), [60.0], [LONGEST_S])
    assert story.passed > 0
    assert story.due_at <= 2 * 86_400.0 + STEP_S
    assert story.began_at > story.due_at


waiting = st.lists(
    st.tuples(
        st.floats(0.0, 8 * DAY_S), st.integers(LOW, HIGH), st.sampled_from("abc"), st.one_of(st.none(), lengths_s)
    ),
    min_size=2,
    max_size=12,
)
used = st.dictionaries(st.sampled_from("abc"), st.floats(0.0, 1e12), max_size=3)


@given(waiting, used)
def test_nobody_comes_before_one_who_was_submitted_more_than_two_and_a_half_days_earlier(waiting, used):
    """Whatever priorities, shares and lengths say: any number of short runs of a favoured person harms nobody."""
    queue = Queue(
        gang(
            f"g{seq}",
            queued_at=at,
            priority=priority,
            user=user,
            seq=seq,
            length=None if median_s is None else Length(log_normal(median_s, 1.0)),
        )
        for seq, (at, priority, user, median_s) in enumerate(waiting)
    )
    latest = 0.0
    for found in queue.in_order(standings(used)):
        assert found.queued_at >= latest - 2.5 * DAY_S
        latest = max(latest, found.queued_at)


def test_one_that_nobody_lies_about_starts_when_it_is_due():
    story = play((3600.0, 7200.0), [3 * 86_400.0], [3 * 86_400.0])
    assert story.passed == 0
    assert story.began_at <= 7200.0 + STEP_S
