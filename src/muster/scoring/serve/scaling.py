"""How many replicas the load asks for. Pure."""

from __future__ import annotations

import math


def wanted(now: int, busy: float, waiting: int, target_percent: float, least: int, most: int) -> int:
    """The number for `now` replicas that are busy this share of their time, while so many requests wait."""
    needed = math.ceil(now * busy * 100 / target_percent - 1e-9)
    if waiting > now:
        # A queue says more than a share that cannot rise above all of the time.
        needed = max(needed, now + 1)
    elif waiting:
        # Not the last one, while anybody waits for it.
        needed = max(needed, 1)
    return max(least, min(most, needed))


class Pace:
    """More at once, fewer only after a while and one at a time: one that is missed costs more than one that idles."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._fewer_since: float = math.inf

    def next(self, now: int, needed: int, at_s: float) -> int:
        """How many there should be at this moment."""
        if needed >= now:
            self._fewer_since = math.inf
            return needed
        self._fewer_since = min(self._fewer_since, at_s)
        if at_s - self._fewer_since < self._idle_s:
            return now
        self._fewer_since = at_s
        return now - 1
