"""Backfill by what is expected, and what guards against wrong expectations; fair shares; pausing."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.control.scheduling.conftest import capacity, cluster, gang, running

from muster.control.estimates.length import Length, log_normal
from muster.control.scheduling.model import LOW, UNKNOWN, Decision, Head, Rules
from muster.control.scheduling.passes import allowance_s, schedule
from muster.control.scheduling.queue import Queue
from muster.control.scheduling.reservation import would_fit_first
from muster.control.scheduling.shares import Ledger, standings
from muster.defaults import (
    DELAY_S,
    FAIR_SHARE_MOST_S,
    GUEST_S,
    LATE_S,
    LATE_SHARE,
    LENGTH_HANDICAP_MOST_S,
    LIKELY_SHARE,
    PAUSE_WAITED_S,
    SHARE_HALF_LIFE_S,
)

MINUTES, HOURS, DAYS = (Length(log_normal(median_s, 0.3)) for median_s in (300.0, 4 * 3600.0, 5 * 86_400.0))


def decide(queue, found, rules=None, now=0.0):
    queue = queue if isinstance(queue, Queue) else Queue(queue)
    return schedule({"c": queue}, found, {"c": rules or Rules()}, now)


def names(decision):
    return [start.run_id for start in decision.starts]


def blocked(length=HOURS):
    """Two nodes; one is held without a limit, so that a gang of two has to wait."""
    nodes = cluster(2)
    return capacity(nodes, running("x", nodes[0], ranks=2, since=-60.0, length=length))


def test_without_limits_what_is_likely_to_end_in_time_starts_and_what_is_not_waits():
    queue = [
        gang("wide", nodes=2, ranks=2, length=MINUTES),
        gang("long", ranks=2, length=DAYS, seq=1),
        gang("short", ranks=2, length=MINUTES, seq=2),
    ]
    decision = decide(queue, blocked())
    assert names(decision) == ["short"]
    assert decision.heads["c"].gang.run_id == "wide"
    assert 3 * 3600 < decision.heads["c"].likely_at < 8 * 3600
    assert decision.heads["c"].starts_by == float("inf")


def test_the_kept_nodes_are_used_only_where_the_others_are_full():
    nodes = cluster(2, cpus=4)
    on_kept = running("hours", nodes[0], ranks=2, since=-60.0, length=HOURS)
    on_other = running("days", nodes[1], ranks=3, since=-60.0, length=DAYS)
    queue = [
        gang("whole", ranks=4, length=MINUTES),
        gang("short", ranks=1, length=MINUTES, seq=1),
        gang("next", ranks=1, length=MINUTES, seq=2),
    ]
    decision = decide(queue, capacity(nodes, on_kept, on_other))
    assert decision.heads["c"].pools == {nodes[0].name}
    placed = {start.run_id: start.places[0].node.name for start in decision.starts}
    assert placed == {"short": nodes[1].name, "next": nodes[0].name}
    assert [item.by_run for item in decision.overtakings] == ["next"]


def test_what_may_delay_the_first_is_a_part_of_what_it_must_wait_anyway():
    uncertain = Length(log_normal(1800.0, 1.5))
    waiting, some = gang("wide", nodes=2, ranks=2, length=MINUTES), gang("some", ranks=2, length=uncertain, seq=1)
    queue = Queue([waiting, some])
    decision = decide(queue, blocked())
    assert names(decision) == ["some"]
    (item,) = decision.overtakings
    assert item.run_id == "wide" and 0 < item.delay_s <= DELAY_S
    queue.note(decision)
    assert queue.passed("wide").times == 1
    # Once it is due and hardly has to wait for the others any more, the same is too uncertain.
    late = replace(decision.heads["c"], due_at=0.0)
    assert allowance_s(late, 0.0) < allowance_s(decision.heads["c"], 0.0)
    queue.note(replace(decision, heads={"c": late}, overtakings=()))
    assert names(decide(queue, blocked(Length(log_normal(900.0, 0.1))))) == []


def test_those_who_have_passed_it_let_nobody_else_pass_until_they_prove_to_be_long():
    nodes = cluster(2)
    waiting = gang("wide", nodes=2, ranks=2, length=MINUTES)
    guest = running("guest", nodes[0], ranks=2, since=100.0, order=(50.0, 9), length=DAYS)
    queue = Queue([waiting, gang("some", ranks=2, length=HOURS, seq=1)])
    queue.note(Decision(heads={"c": Head(waiting, UNKNOWN, frozenset({"c-0", "c-1"}), first_at=0.0, due_at=200.0)}))
    early = decide(queue, capacity(nodes, guest), now=300.0)
    assert names(early) == [] and early.heads["c"].cases == (300.0, 300.0, 300.0)
    assert names(decide(queue, capacity(nodes, guest), now=100.0 + GUEST_S)) == ["some"]


def test_nobody_is_passed_over_for_ever_whatever_was_expected():
    waiting = gang("wide", nodes=2, ranks=2, length=MINUTES)
    liar = gang("liar", ranks=2, length=Length(log_normal(2400.0, 1.2)), seq=1)
    first = Head(waiting, UNKNOWN)
    due = replace(first, due_at=7200.0)
    assert due.closes_at == 7200.0 + LATE_S + LATE_SHARE * 7200.0
    assert allowance_s(replace(first, likely_at=due.closes_at + 3600.0), due.closes_at - 1) > 0
    assert allowance_s(replace(due, likely_at=due.closes_at + 3600.0), due.closes_at) == 0.0
    queue = Queue([waiting, liar])
    assert names(decide(queue, blocked())) == ["liar"]
    queue.note(replace(decide(queue, blocked()), heads={"c": due}))
    assert names(decide(queue, blocked(), now=due.closes_at)) == []


def test_a_gang_is_due_when_it_would_fit_had_nobody_behind_it_started():
    nodes = cluster(2)
    waiting = gang("wide", nodes=2, ranks=2, length=MINUTES, queued_at=0.0)
    before = running("before", nodes[0], ranks=2, since=-100.0, order=(-100.0, 0), length=MINUTES)
    passer = running("passer", nodes[1], ranks=2, since=50.0, order=(20.0, 2), length=MINUTES)
    assert not would_fit_first(waiting, capacity(nodes, before, passer), first_at=10.0)
    assert would_fit_first(waiting, capacity(nodes, passer), first_at=10.0)
    ahead = running("ahead", nodes[1], ranks=2, since=50.0, order=(-1e6, 0), length=MINUTES)
    assert not would_fit_first(waiting, capacity(nodes, ahead), first_at=10.0)
    assert not would_fit_first(waiting, capacity(nodes, passer), first_at=60.0)


def test_the_first_keeps_its_nodes_unless_others_are_free_much_sooner():
    nodes = cluster(2)
    soon, later = (
        running(name, node, ranks=2, length=Length(log_normal(median_s, 0.1)))
        for name, node, median_s in zip(("soon", "later"), nodes, (3600.0, 7200.0), strict=True)
    )
    queue = Queue([gang("head", ranks=2, length=MINUTES)])
    found = capacity(nodes, soon, later)
    first = decide(queue, found)
    assert first.heads["c"].pools == {"c-0"}
    queue.note(first)
    found.let_go("soon")
    found.hold(running("again", nodes[0], ranks=2, length=Length(log_normal(14_400.0, 0.1))))
    assert decide(queue, found).heads["c"].pools == {"c-0"}
    found.let_go("again")
    found.hold(running("again", nodes[0], ranks=2, length=DAYS))
    assert decide(queue, found).heads["c"].pools == {"c-1"}


def test_a_limit_far_beyond_what_such_runs_take_is_not_planned_with():
    nodes = cluster(2)
    careless = running("x", nodes[0], ranks=2, until=30 * 86_400.0, length=MINUTES)
    head = decide([gang("wide", nodes=2, ranks=2)], capacity(nodes, careless)).heads["c"]
    assert head.likely_at < 2 * 3600 and head.starts_by == 30 * 86_400.0
    careful = running("x", nodes[0], ranks=2, until=1200.0, length=MINUTES)
    assert decide([gang("wide", nodes=2, ranks=2)], capacity(nodes, careful)).heads["c"].likely_at == 1200.0


def test_who_used_less_lately_comes_first_and_what_was_used_is_forgotten():
    ledger = Ledger()
    ledger.add("ann", 100_000.0, 0.0)
    queue = [gang("a", ranks=2, user="ann", seq=1), gang("b", ranks=2, user="bob", queued_at=600.0, seq=2)]

    def first(now):
        rules = Rules(used=ledger.with_running((), ("ann", "bob"), now))
        return names(decide(queue, capacity(cluster(1)), rules, now))

    assert first(700.0) == ["b"]
    assert first(700.0 + 40 * SHARE_HALF_LIFE_S) == ["b"]  # a share is a share, however small
    ledger.add("bob", 1_000.0, 40 * SHARE_HALF_LIFE_S)
    assert first(40 * SHARE_HALF_LIFE_S + 700.0) == ["a"]
    assert names(decide(queue, capacity(cluster(1)), None, 700.0)) == ["a"]


def test_a_clock_that_is_set_back_by_years_makes_nobody_have_used_more():
    ledger = Ledger()
    ledger.add("ada", 3600.0, 2e9)
    assert ledger.used("ada", 0.0) == 3600.0
    ledger.add("ada", 3600.0, 0.0)
    assert ledger.used("ada", 0.0) == 7200.0


def test_a_run_that_began_in_the_future_has_lasted_for_nothing_so_far():
    length = Length(log_normal(3600.0, 1.0))
    held = running("x", cluster(1)[0], since=1000.0, length=length)
    assert held.likely_end(500.0) == 500.0 + length.quantile(LIKELY_SHARE)


def test_a_run_that_resumed_is_as_far_as_all_its_attempts():
    """Otherwise one that was paused near its end would count as a whole one again."""
    length = Length(log_normal(3600.0, 0.2))
    held = running("x", cluster(1)[0], since=1000.0, length=length)
    resumed = replace(held, before_s=3000.0)
    assert resumed.likely_end(1000.0) == 1000.0 + length.quantile(LIKELY_SHARE, 3000.0)
    assert resumed.likely_end(1000.0) < held.likely_end(1000.0) - 1800.0


def test_fair_shares_are_bounded_and_need_two():
    assert standings({"ann": 5.0}) == {}
    assert standings({"ann": 0.0, "bob": 0.0}) == {}
    places = standings({"ann": 1e9, "bob": 0.0})
    assert places["ann"].behind_s <= FAIR_SHARE_MOST_S and places["bob"].behind_s == -FAIR_SHARE_MOST_S
    assert places["ann"].weight > 1 > places["bob"].weight


def test_what_runs_now_counts_as_used():
    nodes = cluster(1, gpus=4)
    held = running("x", nodes[0], gpus="0123", user="ann", since=0.0)
    assert Ledger().with_running([held], ["ann", "bob"], 100.0) == {"ann": 400.0, "bob": 0.0}


def test_work_with_checkpoints_is_paused_for_what_is_short_and_has_waited_long():
    nodes = cluster(1)
    held = {"ranks": 2, "length": DAYS, "checkpoints": True, "since": 0.0}
    short = gang("short", ranks=2, length=MINUTES, queued_at=7200.0)
    late = 7200.0 + PAUSE_WAITED_S
    decision = decide([short], capacity(nodes, running("x", nodes[0], **held)), Rules(preemption=True), late)
    assert [(item.run_id, item.why) for item in decision.preemptions] == [
        ("x", "short is expected to be short and has waited long")
    ]
    for allowed, now, more in (
        (False, late, {}),
        (True, 7300.0, {}),
        (True, late, {"checkpoints": False}),
        (True, late, {"preemptible": False}),
        (True, late, {"since": late - 60.0}),
    ):
        found = capacity(nodes, running("x", nodes[0], **{**held, **more}))
        assert not decide([short], found, Rules(preemption=allowed), now).preemptions
    long = gang("long", ranks=2, length=DAYS, queued_at=7200.0)
    found = capacity(nodes, running("x", nodes[0], **held))
    assert not decide([long], found, Rules(preemption=True), late).preemptions
    low = gang("low", ranks=2, length=MINUTES, queued_at=7200.0, priority=LOW)
    assert not decide([low], found, Rules(preemption=True), late).preemptions


def test_work_is_paused_for_what_is_short_behind_a_long_one_too():
    nodes = cluster(2)
    held = {"ranks": 2, "length": DAYS, "since": 0.0}
    late = 7200.0 + PAUSE_WAITED_S
    # Long ones count as queued up to six hours later, so it came that much earlier.
    first = gang("first", nodes=2, ranks=2, length=DAYS, queued_at=7200.0 - LENGTH_HANDICAP_MOST_S)
    short = gang("short", ranks=2, length=MINUTES, queued_at=7200.0, seq=2)
    other = gang("other", ranks=2, length=MINUTES, queued_at=7200.0, seq=3)
    young = gang("young", ranks=2, length=MINUTES, queued_at=late - 60.0, seq=4)
    x, y = running("x", nodes[0], checkpoints=True, **held), running("y", nodes[1], **held)
    queue = [first, short, other, young]
    decision = decide(queue, capacity(nodes, x, y), Rules(preemption=True), late)
    assert decision.heads["c"].gang.run_id == "first"
    assert [(item.run_id, item.for_run) for item in decision.preemptions] == [("x", "short")], "one at a time"
    # While one makes room, and where nobody allows it or nobody has waited long, nobody else has to go.
    leaving = replace(x, stopping=True)
    z = replace(y, checkpoints=True)
    assert not decide(queue, capacity(nodes, leaving, z), Rules(preemption=True), late).preemptions
    assert not decide(queue, capacity(nodes, x, y), Rules(preemption=False), late).preemptions
    assert not decide([first, young], capacity(nodes, x, y), Rules(preemption=True), late).preemptions
    # Once it has made room, the short one starts there.
    after = decide(queue, capacity(nodes, y), Rules(preemption=True), late)
    assert names(after)[0] == "short"
