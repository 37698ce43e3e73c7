"""What happens next to the runs of an endpoint."""

from __future__ import annotations

from dataclasses import replace

from muster.control.endpoints import DRAINING, SERVING, STARTING, Member, Step, Wanted, next_steps
from muster.wire import states

WANTED = {"blue": Wanted(2, 2)}


def blue(run: str, revision: int, state: str, status: str = states.RUNNING, ready: int = 0, **more: bool) -> Member:
    return Member(run, "blue", revision, state, status, ready, **more)


def test_a_new_revision_serves_once_all_its_replicas_are_ready() -> None:
    assert next_steps([blue("new", 2, STARTING, ready=1)], WANTED) == []
    assert next_steps([blue("new", 2, STARTING, ready=2)], WANTED) == [Step("serve", "new")]


def test_the_old_one_is_drained_when_the_new_one_serves_and_ended_when_it_is_unused() -> None:
    old, new = blue("old", 1, SERVING, ready=2), blue("new", 2, STARTING, ready=1)
    assert next_steps([old, new], WANTED) == []
    serving = blue("new", 2, SERVING, ready=2)
    assert next_steps([old, serving], WANTED) == [Step("drain", "old")]
    assert next_steps([blue("old", 1, DRAINING), serving], WANTED) == []
    assert next_steps([blue("old", 1, DRAINING, unused=True), serving], WANTED) == [Step("cancel", "old")]
    assert next_steps([blue("old", 1, DRAINING, states.CANCELED), serving], WANTED) == [Step("forget", "old")]


def test_a_revision_that_failed_leaves_the_old_one_where_it_is() -> None:
    failed = blue("new", 2, STARTING, states.FAILED, ready=2)
    assert next_steps([blue("old", 1, SERVING), failed], WANTED) == []


def test_what_was_undeployed_is_drained() -> None:
    assert next_steps([blue("old", 1, SERVING)], {}) == [Step("drain", "old")]


def test_a_front_door_that_ended_is_replaced_after_a_moment() -> None:
    door = Member("door", None, 0, STARTING, states.FAILED)
    assert next_steps([door], WANTED) == []
    assert next_steps([Member("door", None, 0, STARTING, states.FAILED, age_s=60)], WANTED) == [Step("replace", "door")]
    assert next_steps([Member("door", None, 0, STARTING, states.RUNNING, age_s=60)], WANTED) == []


def test_the_parts_of_a_revision_serve_together_and_each_again_once_it_answers() -> None:
    parts = [blue("one", 2, STARTING, ready=2), blue("two", 2, STARTING)]
    wanted = {"blue": Wanted(2, 4)}
    assert next_steps(parts, wanted) == []
    parts[1] = blue("two", 2, STARTING, ready=2)
    assert next_steps(parts, wanted) == [Step("serve", "one"), Step("serve", "two")]
    serving = blue("one", 2, SERVING, ready=2)
    assert next_steps([serving, blue("two", 2, STARTING)], wanted) == []
    assert next_steps([serving, blue("two", 2, STARTING, ready=1)], wanted) == [Step("serve", "two")]


def test_a_run_that_served_and_failed_gets_new_attempts_and_one_that_never_did_gets_none() -> None:
    failed = Member("one", "blue", 2, SERVING, states.FAILED, age_s=60)
    assert next_steps([failed], WANTED) == [Step("again", "one")]
    assert next_steps([replace(failed, state=STARTING)], WANTED) == []
    assert next_steps([replace(failed, status=states.CANCELED)], WANTED) == []
    assert next_steps([replace(failed, revision=1), blue("new", 2, STARTING)], WANTED) == []


def test_replicas_of_an_attempt_that_is_over_are_gone() -> None:
    lost = Member("one", "blue", 2, SERVING, states.QUEUED, ready=2, lost=True)
    assert next_steps([lost], WANTED) == [Step("lose", "one")]
    assert next_steps([replace(lost, lost=False)], WANTED) == []
