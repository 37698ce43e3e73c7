"""The agent's pure decisions: orders against phases, when ranks are signalled, what a journal says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.agent.attempt import Phase, Step, may_leave, next_step
from muster.agent.run import journal
from muster.agent.run.journal import Moment, Story
from muster.agent.run.keeper import Ending
from muster.wire.node.agents import Exited, Order, Started, StartedRank
from muster.wire.node.plan import NodePlan

PLAN = NodePlan(0, "n", "a", (), ())


def _order(action: str, plan: bool = False) -> Order:
    return Order(run="r", attempt=1, action=action, plan=PLAN if plan else None)


@pytest.mark.parametrize(
    ("order", "phase", "step"),
    [
        (_order("prepare"), Phase.ORDERED, Step.PREPARE),
        (_order("go", plan=True), Phase.ORDERED, Step.PREPARE),
        (_order("prepare"), Phase.PREPARED, None),
        (_order("prepare", plan=True), Phase.PREPARED, Step.LAUNCH),
        (_order("go", plan=True), Phase.PREPARED, Step.LAUNCH),
        (_order("go", plan=True), Phase.RUNNING, None),
        (_order("go", plan=True), Phase.ENDED, None),
        (_order("stop"), Phase.ORDERED, Step.END),
        (_order("stop"), Phase.PREPARING, None),
        (_order("stop"), Phase.PREPARED, Step.END),
        (_order("stop"), Phase.RUNNING, Step.STOP),
        (_order("stop"), Phase.ENDED, None),
        (_order("stop"), Phase.DELIVERED, None),
        (_order("forget"), Phase.PREPARING, None),
        (_order("forget"), Phase.RUNNING, Step.STOP),
        (_order("forget"), Phase.ENDED, Step.REMOVE),
        (_order("forget"), Phase.DELIVERED, Step.REMOVE),
    ],
)
def test_an_order_asks_for_the_next_step(order: Order, phase: Phase, step: Step | None) -> None:
    assert next_step(order, phase) is step


@pytest.mark.parametrize(
    ("phases", "asked", "long_lived", "had_any", "leaves"),
    [
        (set(), False, True, True, False),
        (set(), True, True, False, True),
        ({Phase.DELIVERED}, True, True, True, False),
        (set(), False, False, False, False),
        (set(), False, False, True, True),
        ({Phase.DELIVERED}, True, False, True, True),
        ({Phase.DELIVERED}, False, False, True, False),
        ({Phase.DELIVERED, Phase.ENDED}, True, False, True, False),
    ],
)
def test_an_agent_leaves_when_it_is_asked_to_or_after_its_last_attempt(
    phases: set[Phase], asked: bool, long_lived: bool, had_any: bool, leaves: bool
) -> None:
    assert may_leave(phases, asked=asked, long_lived=long_lived, had_any=had_any) is leaves


def test_a_failure_is_followed_by_quiet_then_sigterm_then_sigkill() -> None:
    ending = Ending(grace_failure_s=0.5, kill_after_term_s=0.3)
    assert ending.wait_s(0.0, termed=False) is None
    ending.failed(10.0)
    assert not ending.terminating(10.4)
    assert ending.wait_s(10.0, termed=False) == pytest.approx(0.5)
    assert ending.terminating(10.5)
    assert not ending.killing(10.7)
    assert ending.killing(10.81)
    assert ending.reason == "rank_failed"


def test_no_essential_rank_left_ends_the_quiet() -> None:
    ending = Ending(0.5, 0.3)
    ending.failed(10.0)
    ending.done(10.1)
    assert ending.terminating(10.1)
    assert ending.killing(10.41)
    assert ending.reason == "rank_failed"


def test_a_stop_keeps_its_grace_when_the_ranks_are_gone_but_not_their_children() -> None:
    ending = Ending(0.5, 0.3)
    ending.stop(10.0, 30.0, "cancelled")
    ending.done(10.1)
    assert not ending.killing(39.9)
    assert ending.killing(40.0)


def test_a_stronger_stop_replaces_a_weaker_one_and_never_the_reverse() -> None:
    ending = Ending(0.5, 0.3)
    ending.stop(10.0, 30.0, "cancelled")
    ending.stop(11.0, 0.0, "killed")
    ending.stop(12.0, 30.0, "cancelled")
    assert ending.killing(11.0)
    assert ending.reason == "cancelled"


def test_a_story_tells_each_thing_once() -> None:
    story = Story()
    entries = [
        {"kind": "started", "at": 1.0, "rank": 0, "pid": 7},
        {"kind": "running", "at": 1.1},
        {"kind": "exited", "at": 2.0, "rank": 0, "exit_code": 0, "signal": None, "expected": False},
        {"kind": "ended", "at": 2.1, "reason": "done"},
    ]
    told = [event for entry in entries for event in story.add(entry)]
    assert told == [
        Moment(1.1, Started((StartedRank(0, 7, 1.0),))),
        Moment(2.0, Exited(0, 0, None, expected=False, at=2.0)),
    ]
    assert [event for entry in entries for event in story.add(entry)] == []
    assert story.ended == entries[-1]
    assert story.lose(3.0, "agent") == []


def test_a_refused_rank_is_an_exit_with_its_reason() -> None:
    told = Story().add({"kind": "refused", "at": 1.0, "rank": 2, "message": "no such program", "exit_code": 127})
    assert [moment.data.kind for moment in told] == ["started", "exited"]
    assert told[1].data.refusal == "no such program"


def test_ranks_whose_end_nobody_saw_are_told_as_lost() -> None:
    story = Story()
    story.add({"kind": "started", "at": 1.0, "rank": 0, "pid": 7})
    told = story.lose(5.0, "keeper")
    assert [moment.data for moment in told] == [
        Started((StartedRank(0, 7, 1.0),)),
        Exited(0, None, None, expected=False, at=5.0, lost_with="keeper"),
    ]


def test_a_torn_journal_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = json.dumps({"kind": "running", "at": 1.0})
    path.write_text(f'{whole}\n[1]\n{whole}\n{{"kind": "exi')
    assert len(journal.read(path)) == 2
    assert journal.read(tmp_path / "none") == []
