"""How many nodes a cluster has, and what becomes of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.scheduling.autoscale import Limits, Member, Wanted, autoscale, nodes_wanted
from muster.control.scheduling.nodes import Seen, next_state
from muster.defaults import NODE_START_S

wanted = st.lists(st.builds(Wanted, st.integers(1, 6), st.integers(1, 4)), max_size=6)
states = st.builds(
    Member,
    name=st.just(""),
    busy=st.booleans(),
    idle_s=st.sampled_from([0.0, 10.0, 100.0, 1000.0]),
    usable=st.booleans(),
    leaving=st.booleans(),
)


@st.composite
def situations(draw):
    least = draw(st.integers(0, 4))
    limits = Limits(least, draw(st.integers(least, 8)), 100.0)
    found = draw(st.lists(states, max_size=10))
    members = [Member(f"n{n}", m.busy, m.idle_s, m.usable, m.leaving) for n, m in enumerate(found)]
    return members, draw(wanted), limits


@given(situations())
def test_stays_within_its_limits(situation):
    members, queue, limits = situation
    scaling = autoscale(members, queue, limits)
    staying = [member for member in members if not member.leaving]
    if scaling.add:
        assert len(members) + scaling.add <= limits.max_nodes
    if len(staying) >= limits.min_nodes:
        assert len(staying) - len(scaling.remove) >= min(limits.min_nodes, limits.max_nodes)


@given(situations())
def test_never_takes_a_busy_node_nor_one_that_goes_already(situation):
    members, queue, limits = situation
    by_name = {member.name: member for member in members}
    for name in autoscale(members, queue, limits).remove:
        assert not by_name[name].busy and not by_name[name].leaving


@given(situations())
def test_brings_no_more_than_the_queue_can_use(situation):
    members, queue, limits = situation
    staying = sum(not member.leaving for member in members)
    most = max(sum(gang.nodes for gang in queue), limits.min_nodes - staying, 0)
    assert autoscale(members, queue, limits).add <= most
    assert nodes_wanted(queue) <= sum(gang.nodes for gang in queue)


@given(situations())
def test_does_not_flap(situation):
    """What was sent away is not called back at once, and what was brought is not sent away."""
    members, queue, limits = situation
    scaling = autoscale(members, queue, limits)
    assert not (scaling.add and scaling.remove)
    rest = [member for member in members if member.name not in scaling.remove]
    fresh = [Member(f"new{number}") for number in range(scaling.add)]
    again = autoscale([*rest, *fresh], queue, limits)
    if scaling.remove:
        assert again.add == 0
    if scaling.add:
        assert not any(name.startswith("new") for name in again.remove)


@given(situations())
def test_a_repeated_look_settles(situation):
    members, queue, limits = situation
    for _ in range(3):
        scaling = autoscale(members, queue, limits)
        members = [member for member in members if member.name not in scaling.remove]
        members += [Member(f"more{len(members)}.{number}") for number in range(scaling.add)]
    assert autoscale(members, queue, limits).add == 0


def test_small_gangs_share_nodes_and_parts_of_one_gang_do_not():
    assert nodes_wanted([Wanted(1, 4)] * 6) == 2
    assert nodes_wanted([Wanted(3, 4)]) == 3
    assert nodes_wanted([]) == 0


def seen(state, **more):
    return Seen("n", state, since=0.0, **{"life": "up", "here": True, **more})


@pytest.mark.parametrize(
    ("node", "state", "reason"),
    [
        (seen("preparing"), "idle", "ready"),
        (seen("preparing", setup_error="exit code 3"), "unusable", "its set-up failed: exit code 3"),
        (seen("preparing", here=False, life="starting"), None, ""),
        (seen("preparing", here=False, life="gone", why="no disk"), "unusable", "its agent did not come: no disk"),
        (seen("idle"), None, ""),
        (seen("idle", busy=True), "running", ""),
        (seen("running"), "idle", ""),
        (seen("running", busy=True, taken_back=True), "preempted", "its machine was taken back"),
        (seen("idle", taken_back=True, life="gone"), "preempted", "its machine was taken back"),
        (seen("running", busy=True, life="gone", here=False), None, ""),
        (seen("idle", life="gone"), "gone", "its agent ended"),
        (seen("leaving", busy=True), None, ""),
        (seen("leaving", life="gone"), "gone", "it has left"),
        (seen("preempted", life="gone"), "gone", "its machine was taken back"),
        (seen("unusable", life="gone"), None, ""),
    ],
)
def test_a_node_moves_on(node, state, reason):
    change = next_state(node, now=NODE_START_S + 1)
    assert (change and change.state) == state
    assert state is None or change.reason == reason


def test_a_gang_that_is_kept_off_the_only_free_node_brings_another():
    free = [Member("n0", idle_s=5.0)]
    assert autoscale(free, [Wanted(1, 64)], Limits(0, 2, 100.0)).add == 0
    assert autoscale(free, [Wanted(1, 64, kept_off=1)], Limits(0, 2, 100.0)).add == 1
    assert autoscale(free, [Wanted(1, 64, kept_off=1)], Limits(0, 1, 100.0)).add == 0
