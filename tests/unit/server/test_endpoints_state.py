"""What is known of front doors while the server lives: whether they go by a change already."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from muster.server.endpoints.state import EndpointsState
from muster.wire.serving.endpoints import ServingReport


def test_a_change_waits_until_the_front_door_goes_by_it_and_no_longer_than_it_may() -> None:
    async def work() -> list[bool]:
        state = EndpointsState()
        state.note("door", ServingReport(1, seen=3))
        waiting = asyncio.ensure_future(state.until_followed("door", 5, 60.0))
        for run, seen in (("door", 4), ("other", 9), ("door", 6)):
            await asyncio.sleep(0)
            assert not waiting.done()
            state.note(run, ServingReport(1, seen=seen))
        found = [await waiting, await state.until_followed("door", 6, 60.0)]
        return [*found, await state.until_followed("door", 7, 0.01)]

    assert asyncio.run(work()) == [True, True, False]


def test_what_runs_said_that_are_over_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    state, now = EndpointsState(), 0.0
    monkeypatch.setattr("muster.server.endpoints.state.time", SimpleNamespace(monotonic=lambda: now))
    for number in range(1000):
        now += 1.0
        state.note(f"run-{number}", ServingReport(1))
    assert len(state.heard) < 200 and state.of("run-999") is not None
