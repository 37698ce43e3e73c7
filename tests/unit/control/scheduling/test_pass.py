"""Which gang starts where, and who waits."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.scheduling.conftest import busy_clusters, capacity, cluster, gang, gangs, machine, running

from muster.control.scheduling.capacity import UNITS, units
from muster.control.scheduling.model import HIGH, LOW, UNKNOWN, Quota, Rules
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.defaults import PRIORITY_HEADSTART_S, START_MARGIN_S


def decide(queue, found, rules=None, now=0.0):
    return schedule({"c": Queue(queue)}, found, {"c": rules or Rules()}, now)


def names(decision):
    return [start.run_id for start in decision.starts]


def used(decision, name):
    start = next(item for item in decision.starts if item.run_id == name)
    return [place.node.name for place in start.places]


def test_starts_in_order_what_fits():
    decision = decide([gang("a", seq=1), gang("b", seq=2), gang("c", seq=3)], capacity(machine()))
    assert names(decision) == ["a", "b"]
    assert decision.heads["c"].gang.run_id == "c"


def test_a_gang_larger_than_the_machine_starts_when_the_machine_is_idle():
    assert names(decide([gang("big", ranks=8)], capacity(machine()))) == ["big"]
    assert names(decide([gang("big", nodes=4, ranks=8)], capacity(machine()))) == ["big"]
    assert not names(decide([gang("big", ranks=8)], capacity(machine(), running("x", machine()[0]))))


def test_simulated_nodes_share_out_the_gpus():
    start = decide([gang("a", nodes=2)], capacity(machine(gpus="0123"))).starts[0]
    assert [place.gpus for place in start.places] == [("0", "1"), ("2", "3")]


def test_a_gpu_that_one_cluster_holds_is_not_given_by_another_on_the_same_machine():
    from muster.control.scheduling.capacity import Capacity
    from muster.control.scheduling.model import Node

    own = [Node("own-0", "host", "", 2, ("0", "1"))]
    both = Capacity({"c": machine(gpus="0123"), "own": own})
    both.hold(running("x", machine()[0], gpus=("1",)))
    queues = {"own": Queue([gang("a", gpus=1, cluster="own"), gang("b", gpus=1, cluster="own", seq=1)])}
    decision = schedule(queues, both, {}, 0.0)
    assert [place.gpus for start in decision.starts for place in start.places] == [("0",)]
    both.let_go("x")
    assert both.count("own", gang("b", gpus=1).need) == 1


def places(decision):
    return [(start.run_id, place.node.name, place.gpus) for start in decision.starts for place in start.places]


def test_runs_share_a_gpu_and_leave_whole_ones_free():
    queue = [gang(name, share=0.25, seq=number, ranks=0) for number, name in enumerate("abcde")]
    free = capacity(cluster(1, gpus=2))
    decision = decide([*queue, gang("whole", gpus=1, seq=9, ranks=0)], free)
    assert places(decision) == [*((name, "c-0", ("0",)) for name in "abcd"), ("e", "c-0", ("1",))]
    free.let_go("e")
    assert places(decide([gang("whole", gpus=1, ranks=0)], free)) == [("whole", "c-0", ("1",))]
    for name in "abcd":
        free.let_go(name)
    assert places(decide([gang("next", gpus=1, ranks=0)], free)) == [("next", "c-0", ("0",))]


def test_a_part_goes_where_least_is_left_of_a_gpu():
    nodes = cluster(1, cpus=8, gpus=3)
    held = [
        running("much", nodes[0], gpus=("1",), share=0.7),
        running("little", nodes[0], gpus=("0",), share=0.2),
    ]
    assert places(decide([gang("a", share=0.3)], capacity(nodes, *held))) == [("a", "c-0", ("1",))]
    assert places(decide([gang("a", share=0.5)], capacity(nodes, *held))) == [("a", "c-0", ("0",))]
    assert places(decide([gang("a", share=0.9)], capacity(nodes, *held))) == [("a", "c-0", ("2",))]


def test_the_parts_of_a_gang_may_lie_on_one_gpu_of_one_machine():
    decision = decide([gang("a", nodes=4, share=0.5)], capacity(machine(4, cpus=8, gpus="01")))
    assert [gpus for _, _, gpus in places(decision)] == [("0",), ("0",), ("1",), ("1",)]


def test_small_gangs_fill_used_nodes_so_that_whole_nodes_stay_free():
    nodes = cluster(3, cpus=8, gpus=4)
    held = running("x", nodes[1], gpus=("0",))
    decision = decide([gang("a", gpus=2), gang("b", nodes=2, seq=1)], capacity(nodes, held))
    assert used(decision, "a") == ["c-1"]
    assert used(decision, "b") == ["c-0", "c-2"]


def test_a_short_gang_starts_early_and_a_long_one_does_not():
    nodes = cluster(2)
    held = running("x", nodes[0], ranks=2, until=3600.0)
    queue = [
        gang("head", nodes=2, ranks=2, limit_s=60, seq=0),
        gang("long", ranks=2, limit_s=7200, seq=1),
        gang("unlimited", ranks=2, seq=2),
        gang("short", ranks=2, limit_s=3600 - START_MARGIN_S, seq=3),
    ]
    decision = decide(queue, capacity(nodes, held))
    assert names(decision) == ["short"]
    assert decision.heads["c"].starts_by == 3600.0


def test_a_long_gang_starts_early_on_nodes_that_are_not_kept():
    nodes = cluster(3)
    held = running("x", nodes[0], nodes[1], ranks=2, until=200.0)
    queue = [gang("head", nodes=2, ranks=2, seq=0), gang("long", ranks=2, limit_s=1e6, seq=1)]
    decision = decide(queue, capacity(nodes, held))
    assert used(decision, "long") == ["c-2"]
    assert decision.heads["c"].starts_by == 200.0


def test_nothing_overtakes_a_gang_whose_start_nobody_knows():
    nodes = cluster(2)
    queue = [gang("head", nodes=2, ranks=2), gang("short", limit_s=1, seq=1)]
    decision = decide(queue, capacity(nodes, running("x", nodes[0], ranks=2)))
    assert names(decision) == [] and decision.heads["c"].starts_by == UNKNOWN


def test_a_higher_priority_goes_first_but_not_for_ever():
    nodes = cluster(1, cpus=1)
    low = gang("low", priority=LOW, queued_at=0.0)
    soon = gang("soon", priority=HIGH, queued_at=60.0)
    late = gang("late", priority=HIGH, queued_at=2 * PRIORITY_HEADSTART_S + 1)
    assert names(decide([low, soon], capacity(nodes))) == ["soon"]
    assert names(decide([low, late], capacity(nodes))) == ["low"]


def test_a_gang_of_higher_priority_makes_room_for_itself_where_that_is_allowed():
    nodes = cluster(3)
    old = running("old", nodes[0], ranks=2, priority=LOW, since=1.0)
    new = running("new", nodes[1], ranks=2, priority=LOW, since=2.0)
    own = running("own", nodes[2], ranks=2, priority=LOW, since=3.0, preemptible=False)
    queue = [gang("urgent", ranks=2, priority=HIGH)]
    assert not decide(queue, capacity(nodes, old, new, own)).preemptions
    decision = decide(queue, capacity(nodes, old, new, own), Rules(preemption=True))
    assert [(item.run_id, item.for_run) for item in decision.preemptions] == [("new", "urgent")]


def test_who_makes_room_already_is_enough():
    nodes = cluster(2)
    leaving = running("leaving", nodes[0], ranks=2, priority=LOW, stopping=True)
    other = running("other", nodes[1], ranks=2, priority=LOW)
    queue = [gang("urgent", ranks=2, priority=HIGH), gang("small", limit_s=60, priority=LOW, seq=1)]
    decision = decide(queue, capacity(nodes, leaving, other), Rules(preemption=True))
    assert not decision.preemptions and not decision.starts


def test_quotas_hold_users_back_and_let_others_pass():
    rules = Rules(per_user=Quota(nodes=2), users={"eve": Quota(nodes=3)}, per_experiment=Quota(gpus=3))
    queue = [
        gang("a1", nodes=2, gpus=0, user="ann", seq=1),
        gang("a2", gpus=0, user="ann", seq=2),
        gang("b1", gpus=2, user="bob", experiment="e", seq=3),
        gang("b2", gpus=2, user="eve", experiment="e", seq=4),
        gang("e1", nodes=3, gpus=0, user="eve", seq=5),
    ]
    decision = decide(queue, capacity(cluster(8, 4, 2)), rules)
    assert names(decision) == ["a1", "b1", "e1"]
    assert decision.passed_over["a2"] == "the user ann may hold 2 nodes of c at a time, holds 2 and needs 1 more"
    assert decision.passed_over["b2"].startswith("the experiment e may hold 3 GPUs of c at a time, holds 2")


def test_excluded_nodes_are_kept_off_where_others_are_left():
    picky = gang("a", excluded=frozenset({"c-0"}))
    assert used(decide([picky], capacity(cluster(2))), "a") == ["c-1"]
    both = gang("b", nodes=2, excluded=frozenset({"c-0"}))
    assert used(decide([both], capacity(cluster(2))), "b") == ["c-0", "c-1"]


def test_a_gang_for_which_too_few_nodes_are_left_does_not_hold_up_the_others():
    decision = decide([gang("wide", nodes=3), gang("a", seq=1)], capacity(cluster(2)))
    assert names(decision) == ["a"]
    assert decision.passed_over["wide"] == "needs 3 nodes; only 2 of c can be used now"
    waits = decide([gang("wide", nodes=3), gang("a", seq=1)], capacity(cluster(2)), Rules(coming=1))
    assert names(waits) == [] and waits.heads["c"].gang.run_id == "wide"


def test_a_stopped_cluster_and_a_gang_before_its_time_start_nothing():
    assert not decide([gang("a")], capacity(cluster()), Rules(closed="stopped")).starts
    assert not decide([gang("a", not_before=10.0)], capacity(cluster()), now=5.0).starts


@given(gangs(), busy_clusters())
def test_nothing_is_given_twice_and_gangs_are_whole(queue, found):
    _, free = found
    decision = decide(queue, free)
    wanted = {item.run_id: item.need for item in queue}
    for start in decision.starts:
        assert len({place.node.name for place in start.places}) == wanted[start.run_id].nodes == len(start.places)
    held = Counter()
    for part in (part for item in free.running.values() for part in item.parts):
        assert len(part.gpus) == 1 or part.share == 1
        held.update({(part.host, gpu): units(part.share) for gpu in part.gpus})
    assert all(amount <= UNITS for amount in held.values())
    for pool in free.pools:
        inside = [part for item in free.running.values() for part in item.parts if free.pool_of(part.node) is pool]
        holders = {item.run_id for item in free.running.values() for part in item.parts if part in inside}
        assert sum(part.ranks for part in inside) <= pool.cpus or len(holders) <= 1
        assert pool.ranks == sum(part.ranks for part in inside)


@given(gangs(), busy_clusters())
def test_what_is_counted_as_free_is_what_a_recount_finds(queue, found):
    nodes, free = found
    decide(queue, free)
    fresh = capacity(nodes, *free.running.values())
    for item in queue:
        assert fresh.count("c", item.need) == free.count("c", item.need)
    for run_id in list(free.running):
        free.let_go(run_id)
    empty = capacity(nodes)
    for item in queue:
        assert empty.count("c", item.need) == free.count("c", item.need) == free.ever("c", item.need)


@settings(max_examples=300)
@given(gangs(), busy_clusters())
def test_starting_others_early_never_delays_the_head(queue, found):
    """If everybody ends when declared, the head starts when it was promised, whatever started before it."""
    _, free = found
    decision = decide(queue, free)
    head = decision.heads.get("c")
    if head is None or head.starts_by == UNKNOWN:
        return
    for item in list(free.running.values()):
        if item.until <= head.starts_by:
            free.let_go(item.run_id)
    later = decide([head.gang], free, now=head.starts_by)
    assert names(later) == [head.gang.run_id]


@given(gangs(with_limits=False), st.integers(1, 5))
def test_nobody_starves(queue, count):
    """Everything that can start does, while the early ones end and new short gangs keep coming."""
    free = capacity(cluster(count, 4, 2))
    waiting = Queue(queue)
    left = {item.run_id: item for item in queue if free.ever("c", item.need) >= item.need.nodes}
    now, number = 0.0, 1000
    # A low priority may be overtaken for a day, in which an intruder ends every twelve minutes.
    for _ in range(40 * len(queue) + 200):
        if not left:
            break
        intruder = gang(f"i{number}", limit_s=600, seq=number, queued_at=now, gpus=0)
        waiting.add(intruder)
        known = {item.run_id: item for item in waiting}
        number += 1
        for start in schedule({"c": waiting}, free, {}, now).starts:
            waiting.remove(known[start.run_id])
            left.pop(start.run_id, None)
        now = min((item.until for item in free.running.values()), default=now) + 1.0
        for item in [item for item in free.running.values() if item.until <= now]:
            free.let_go(item.run_id)
    assert not left


@given(gangs(), busy_clusters())
def test_a_pass_can_be_repeated(queue, found):
    """The same state gives the same decision, and a second pass has nothing to add."""
    _, free = found
    again = deepcopy(free)
    first, second = decide(queue, free), decide(queue, again)
    assert first == second
    rest = [item for item in queue if item.run_id not in names(first)]
    assert not decide(rest, free).starts


@given(gangs(), busy_clusters())
def test_preemption_frees_enough_and_only_lower_priorities(queue, found):
    _, free = found
    decision = decide(queue, free, Rules(preemption=True))
    if not decision.preemptions:
        return
    head = decision.heads["c"].gang
    for item in decision.preemptions:
        assert free.running[item.run_id].priority < head.priority
        free.let_go(item.run_id)
    assert head.run_id in names(decide([head], free))


def test_parts_of_one_thing_keep_off_each_others_nodes_while_there_are_others():
    parts = [gang(f"part{number}", ranks=0, seq=number, apart="blue") for number in range(3)]
    nodes = cluster(2)
    decision = decide([*parts[:2], gang("other", ranks=0, seq=9)], capacity(nodes))
    assert used(decision, "part0") != used(decision, "part1") and len(names(decision)) == 3
    # A third one shares a node rather than to wait for one that never comes, but waits for one that may.
    assert len(names(decide(parts, capacity(nodes)))) == 3
    assert len(names(decide(parts, capacity(nodes), Rules(coming=1)))) == 2
    # Rather on a node where it failed than on one with its like.
    failed = gang("again", ranks=0, apart="blue", excluded=frozenset({"c-1"}))
    decision = decide([failed], capacity(nodes, running("part0", nodes[0], ranks=0, apart="blue")))
    assert used(decision, "again") == ["c-1"]
