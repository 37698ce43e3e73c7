"""When the scheduler is woken."""

from __future__ import annotations

import asyncio
import time

import uvloop

from muster.server.hub import Hub


def test_the_scheduler_is_never_woken_before_its_moment() -> None:
    """The pass would find nothing due, and nobody would wake it again; libuv's timers round to milliseconds."""

    async def early_s(delay_s: float) -> float:
        hub = Hub()
        moment = time.time() + delay_s
        hub.wake_scheduler_at(moment)
        await asyncio.wait_for(hub.scheduler.wait(), 10)
        return moment - time.time()

    async def earliest_s() -> float:
        return max([await early_s(0.01 + number * 0.0001) for number in range(10)])

    assert uvloop.run(earliest_s()) <= 0


def test_a_moment_that_has_passed_wakes_it_at_once() -> None:
    async def woken() -> bool:
        hub = Hub()
        hub.wake_scheduler_at(time.time() - 5)
        return await asyncio.wait_for(hub.scheduler.wait(), 10)

    assert asyncio.run(woken())
