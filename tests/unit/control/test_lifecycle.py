"""What an attempt does next."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.lifecycle import AttemptView, Finish, Go, Move, NodeView, RankView, Stop, decide
from muster.wire import states


def view(phases=("started",), ranks=None, status=states.RUNNING, **more):
    nodes = [NodeView(rank, f"node-{rank}", phase) for rank, phase in enumerate(phases)]
    found = ranks if ranks is not None else [RankView(rank, rank, state="running") for rank in range(len(phases))]
    return AttemptView(run_status=status, nodes=nodes, ranks=found, **{"planned": True, **more})


def test_waits_for_agents_that_have_not_come():
    absent = [NodeView(0, "a", states.ORDERED), NodeView(1, "b", states.ORDERED, here=False)]
    waiting = AttemptView(states.PROVISIONING, absent, [], planned=False)
    assert decide(waiting) == []


def test_prepares_once_every_agent_is_here():
    assert decide(view((states.ORDERED,) * 2, [], states.PROVISIONING, planned=False)) == [Move(states.PREPARING)]


def test_says_go_only_when_every_node_is_prepared():
    assert Go() not in decide(view((states.PREPARED, states.ORDERED), [], states.PREPARING, planned=False))
    assert Go() in decide(view((states.PREPARED, states.PREPARED), [], states.PREPARING, planned=False))


def test_says_go_only_once():
    assert Go() not in decide(view((states.PREPARED, states.PREPARED), status=states.PREPARING, planned=True))


def test_runs_when_all_nodes_have_started():
    assert decide(view((states.STARTED, states.PREPARED), status=states.PREPARING)) == []
    assert decide(view((states.STARTED, states.STARTED), status=states.PREPARING)) == [Move(states.RUNNING)]


@pytest.mark.parametrize("end", [{"exit_code": 1}, {"signal": 9}, {"exit_code": None, "signal": None}])
def test_a_failed_rank_stops_the_gang(end):
    ranks = [RankView(0, 0, state="running"), RankView(1, 1, state="ended", **end)]
    assert decide(view((states.STARTED,) * 2, ranks)) == [Stop("rank_failed", 0.0)]


def test_where_the_failed_rank_complains_of_others_they_are_asked_where_they_are():
    ranks = [RankView(0, 0, state="running"), RankView(1, 1, state="ended", exit_code=1, waited=True)]
    assert decide(view((states.STARTED,) * 2, ranks)) == [Stop("rank_waited", 0.0)]


def test_a_rank_that_muster_ended_is_no_failure():
    ranks = [RankView(0, 0, state="running"), RankView(1, 1, state="ended", signal=15, expected=True)]
    assert decide(view((states.STARTED,) * 2, ranks)) == []


def test_helpers_are_stopped_when_the_essential_ranks_are_done():
    ranks = [RankView(0, 0, state="ended", exit_code=0), RankView(1, 0, essential=False, state="running")]
    assert decide(view(ranks=ranks)) == [Stop("done", 0.0)]


def test_a_cancel_gives_grace_and_a_second_one_does_not():
    cancelled = decide(view(cancel="cancel"))
    assert cancelled == [Stop("cancelled", 30.0), Move(states.CANCEL_REQUESTED)]
    stopping = view(cancel="kill", stop_reason="cancelled", status=states.CANCEL_REQUESTED)
    assert decide(stopping) == [Stop("killed", 0.0)]


def test_a_lost_node_stops_the_others_at_once():
    lost = view((states.STARTED, states.STARTED))
    lost = replace(lost, nodes=[lost.nodes[0], replace(lost.nodes[1], lost=True)])
    assert decide(lost) == [Stop("node_lost", 0.0)]


def test_finalizes_when_no_process_is_left_and_finishes_when_all_is_delivered():
    ended = [RankView(0, 0, state="ended", exit_code=0)]
    assert decide(view((states.ENDED,), ended)) == [Move(states.FINALIZING)]
    assert decide(view((states.DELIVERED,), ended, states.FINALIZING)) == [Finish()]


def test_a_node_that_was_given_up_does_not_hold_the_run():
    ended = [RankView(0, 0, state="ended", exit_code=0)]
    given_up = view((states.DELIVERED, states.GIVEN_UP), ended, states.FINALIZING, stop_reason="node_lost")
    assert decide(given_up) == [Finish()]


nodes = st.builds(
    NodeView,
    node_rank=st.integers(0, 3),
    name=st.just("n"),
    phase=st.sampled_from(
        [states.ORDERED, states.PREPARED, states.STARTED, states.ENDED, states.DELIVERED, states.GIVEN_UP]
    ),
    lost=st.booleans(),
    here=st.booleans(),
)
ranks = st.builds(
    RankView,
    rank=st.integers(0, 3),
    node_rank=st.integers(0, 3),
    essential=st.booleans(),
    state=st.sampled_from(["waiting", "running", "ended"]),
    exit_code=st.sampled_from([None, 0, 1]),
    signal=st.sampled_from([None, 9]),
    expected=st.booleans(),
)
views = st.builds(
    AttemptView,
    run_status=st.sampled_from(sorted(states.ACTIVE)),
    nodes=st.lists(nodes, min_size=1, max_size=4),
    ranks=st.lists(ranks, max_size=4),
    planned=st.booleans(),
    cancel=st.sampled_from([None, "cancel", "kill"]),
    timed_out=st.booleans(),
    stop_reason=st.sampled_from([None, "rank_failed", "cancelled", "killed", "timeout", "done"]),
)


@given(views)
def test_every_decision_comes_to_rest(start):
    """Applying what was decided leads to a view that asks for nothing new."""
    current = start
    for _ in range(6):
        actions = decide(current)
        if not actions or Finish() in actions:
            return
        for action in actions:
            if isinstance(action, Stop):
                current = replace(current, stop_reason=action.reason)
            elif isinstance(action, Move):
                current = replace(current, run_status=action.status)
            elif isinstance(action, Go):
                current = replace(current, planned=True)
    raise AssertionError(f"still deciding {decide(current)}")


@given(views)
def test_nothing_starts_while_it_is_being_stopped(start):
    actions = decide(start)
    if start.stop_reason or any(isinstance(action, Stop) for action in actions):
        assert Go() not in actions


@given(views)
def test_it_finishes_exactly_when_nothing_more_can_come(start):
    settled = all(node.phase in (states.DELIVERED, states.GIVEN_UP) for node in start.nodes)
    assert (Finish() in decide(start)) == settled
