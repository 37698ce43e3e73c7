"""What an event of a run is in the words of notifications."""

from __future__ import annotations

import pytest

from muster.control.happenings import happening_of, wait_s
from muster.wire.notifications.events import CHOICES, USUAL, unknown, wants
from muster.wire.states import RunStatus
from muster.wire.stream import Note, StateChanged


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Running", "starts"),
        ("Completed", "completes"),
        ("Failed", "fails"),
        ("Canceled", "cancels"),
        ("Queued", "retries"),
        ("Preparing", None),
        ("Finalizing", None),
    ],
)
def test_states_become_words(status: RunStatus, expected: str | None) -> None:
    assert happening_of(StateChanged(status, 20.0), created_at=10.0) == expected


def test_a_submission_is_no_retry() -> None:
    assert happening_of(StateChanged("Queued", 10.0), created_at=10.0) is None


def test_of_notes_only_a_loss_that_is_no_number_is_told() -> None:
    assert happening_of(Note("warning", "loss of rank 0 is not a number since step 3 (NaN): …", 5.0), 1.0) == "nan"
    assert happening_of(Note("warning", "preempted: its nodes are wanted", 5.0), 1.0) is None


def test_ends_stands_for_every_end() -> None:
    assert [word for word in CHOICES if wants(["ends"], word)] == ["ends", "completes", "fails", "cancels"]
    assert wants(USUAL, "hangs") and wants(USUAL, "nan") and not wants(USUAL, "starts")
    assert unknown(["ends", "explodes"]) == "explodes"


def test_waits_grow_and_end_at_an_hour() -> None:
    waits = [wait_s(tries) for tries in range(1, 30)]
    assert waits == sorted(waits) and waits[0] == 2.0 and waits[-1] == 3600.0
