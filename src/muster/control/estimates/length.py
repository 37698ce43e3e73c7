"""A length of time that is not known exactly: its distribution, and what follows from it.

Stored as the chance to last beyond each of a fixed series of times, half an octave apart, linear in between.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

EDGES_S: tuple[float, ...] = (0.0, *(2.0 ** (step / 2) for step in range(47)))
"""From nothing to three months."""
NUM_BINS = len(EDGES_S) - 1
_NONE_LEFT = 1e-6


def bin_of(seconds: float) -> int:
    """The bin of a measured length; beyond the last bin it counts in the last one."""
    return min(NUM_BINS, bisect_right(EDGES_S, max(0.0, seconds))) - 1


def log_normal(median_s: float, spread: float) -> list[float]:
    """The share of each bin where the logarithm is normal with this standard deviation."""
    below = [_normal((math.log(edge) - math.log(median_s)) / spread) if edge else 0.0 for edge in EDGES_S]
    below[-1] = 1.0
    return [high - low for low, high in pairwise(below)]


class Length:
    """How long something takes, as far as it can be predicted before it starts; with a hard limit if there is one."""

    __slots__ = ("_beyond", "_falling", "_tail", "limit_s")

    def __init__(self, shares: Sequence[float], limit_s: float = math.inf) -> None:
        total = math.fsum(shares)
        beyond, tail = [0.0] * (NUM_BINS + 1), [0.0] * (NUM_BINS + 1)
        for index in range(NUM_BINS - 1, -1, -1):
            beyond[index] = beyond[index + 1] + shares[index] / total
            width = EDGES_S[index + 1] - EDGES_S[index]
            tail[index] = tail[index + 1] + width * (beyond[index] + beyond[index + 1]) / 2
        self._beyond = beyond
        self._falling = [-share for share in beyond]
        self._tail = tail
        self.limit_s = limit_s

    def within(self, limit_s: float | None) -> Length:
        """The same with a hard limit: what would take longer is ended there."""
        if limit_s is None or limit_s == self.limit_s:
            return self
        other = Length.__new__(Length)
        other._beyond, other._falling, other._tail = self._beyond, self._falling, self._tail
        other.limit_s = limit_s
        return other

    def quantile(self, share: float, elapsed_s: float = 0.0) -> float:
        """With this probability the remaining time is no longer than the result, once it has lasted for `elapsed_s`."""
        if elapsed_s >= self.limit_s:
            return 0.0
        here = self.chance_beyond(elapsed_s)
        if here < _NONE_LEFT:
            # Longer than anything seen so far: about as long again.
            return min(self.limit_s - elapsed_s, elapsed_s * share / (1.0 - share))
        wanted = here * (1.0 - share)
        index = bisect_left(self._falling, -wanted)
        if index > NUM_BINS:
            at = EDGES_S[-1]
        else:
            high, low = self._beyond[index - 1], self._beyond[index]
            part = (high - wanted) / (high - low) if high > low else 1.0
            at = EDGES_S[index - 1] + part * (EDGES_S[index] - EDGES_S[index - 1])
        return max(0.0, min(at, self.limit_s) - elapsed_s)

    def excess_s(self, slack_s: float, elapsed_s: float = 0.0, most_s: float = math.inf) -> float:
        """How much longer than `slack_s` from now it is expected to last, counting `most_s` at most."""
        until = elapsed_s + max(0.0, slack_s)
        latest = min(self.limit_s, until + most_s)
        if until >= latest:
            return 0.0
        here = self.chance_beyond(elapsed_s)
        if here < _NONE_LEFT:
            return max(0.0, min(latest, 2 * elapsed_s) - until)
        return max(0.0, (self._tail_from(until) - self._tail_from(latest)) / here)

    def chance_beyond(self, seconds: float) -> float:
        """The chance that it takes longer than this, ignoring limits."""
        if seconds >= EDGES_S[-1]:
            return 0.0
        index = bisect_right(EDGES_S, seconds) - 1
        part = (seconds - EDGES_S[index]) / (EDGES_S[index + 1] - EDGES_S[index])
        return self._beyond[index] + part * (self._beyond[index + 1] - self._beyond[index])

    def _tail_from(self, seconds: float) -> float:
        """The area under the curve of `chance_beyond` from here on."""
        if seconds >= EDGES_S[-1]:
            return 0.0
        index = bisect_right(EDGES_S, seconds) - 1
        left = EDGES_S[index + 1] - seconds
        return self._tail[index + 1] + left * (self.chance_beyond(seconds) + self._beyond[index + 1]) / 2


def _normal(deviations: float) -> float:
    return 0.5 * (1.0 + math.erf(deviations / math.sqrt(2.0)))
