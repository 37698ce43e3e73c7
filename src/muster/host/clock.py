"""Wall-clock time at the rate of the monotonic clock: a change of the machine's clock counts once it is adopted."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """A clock whose differences are durations, whatever happens to the machine's clock."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.offset_s = wall() - monotonic()
        """From the monotonic clock to wall-clock time; constant until a jump is adopted."""

    def now(self) -> float:
        return self._monotonic() + self.offset_s

    def jump_s(self) -> float:
        """How far the machine's clock has been set since then, forwards or backwards."""
        return self._wall() - self.now()

    def adopt(self, jump_s: float) -> None:
        """Follow the machine's time from now on; the caller has shifted all stored times accordingly."""
        self.offset_s += jump_s


CLOCK = SteadyClock(lambda: time.time())
"""The process's own."""

now = CLOCK.now
