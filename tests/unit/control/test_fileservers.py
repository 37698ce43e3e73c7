"""What happens next to a file server, decided purely."""

from __future__ import annotations

import pytest

from muster.control.fileservers import AGAIN_S, Kept, next_step, state_of

LONG = AGAIN_S + 1


@pytest.mark.parametrize(
    ("server", "step", "state"),
    [
        (Kept(), "start", "starting"),
        (Kept("Queued"), None, "starting"),
        (Kept("Running", is_up=True), None, "serving"),
        (Kept("Running", has_served=True), None, "starting"),
        (Kept("Failed", LONG, has_served=True), "start", "starting"),
        (Kept("Failed", 0.0, has_served=True), None, "starting"),
        (Kept("Failed", LONG), None, "failed"),
        (Kept("Canceled", LONG, has_served=True), None, "stopped"),
        (Kept("Running", is_up=True, removes=True), None, "deleting"),
        (Kept("Completed", removes=True), "forget", "deleting"),
        (Kept(removes=True), "forget", "deleting"),
    ],
)
def test_its_run_is_started_started_anew_or_forgotten(server: Kept, step: str | None, state: str) -> None:
    assert next_step(server) == step
    assert state_of(server) == state
