"""How many replicas the load needs. Pure."""

from __future__ import annotations

import math


def wanted(now: int, busy: float, waiting: int, target_percent: float, least: int, most: int) -> int:
    """The number of replicas needed, when `now` of them are busy this share of their time and so many requests wait."""
    needed = math.ceil(now * busy * 100 / target_percent - 1e-9)
    if waiting > now:
        # A queue shows more than a share that cannot exceed 100 %.
        needed = max(needed, now + 1)
    elif waiting:
        # Keep the last one while a request waits for it.
        needed = max(needed, 1)
    return max(least, min(most, needed))


class Pace:
    """Adds at once, removes only after a while and one at a time: a missing replica costs more than an idle one."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._fewer_since: float = math.inf

    def next(self, now: int, needed: int, at_s: float) -> int:
        """How many replicas there should be now."""
        if needed >= now:
            self._fewer_since = math.inf
            return needed
        self._fewer_since = min(self._fewer_since, at_s)
        if at_s - self._fewer_since < self._idle_s:
            return now
        self._fewer_since = at_s
        return now - 1
