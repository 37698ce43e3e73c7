"""The time of day at the rate of the monotonic clock: that the machine's clock was set counts once it is adopted."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Differences between its times are durations, whatever happens to the machine's clock."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.offset_s = wall() - monotonic()
        """From the monotonic clock to the time of day; constant until a jump is adopted."""

    def now(self) -> float:
        return self._monotonic() + self.offset_s

    def jump_s(self) -> float:
        """How far the machine's clock has been set since, forwards or backwards."""
        return self._wall() - self.now()

    def adopt(self, jump_s: float) -> None:
        """Show the machine's time from now on; whoever keeps times has moved them by as much."""
        self.offset_s += jump_s


CLOCK = SteadyClock(lambda: time.time())
"""The process's own."""

now = CLOCK.now
