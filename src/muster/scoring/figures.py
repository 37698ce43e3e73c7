"""Figures of serving: how many requests, how fast, how many failed; over the last minute and since the start."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from typing import Callable, Deque, Dict, List, Mapping, Tuple

_WINDOW_S = 60.0
_SLICE_S = 5.0
_FIRST = 0.05
_GROWTH = 1.15
BOUNDS: List[float] = [_FIRST * _GROWTH**power for power in range(110)]
"""Upper bounds of the classes in which values are counted: neighbours differ by 15 %, up to some 200,000."""

Counts = Dict[int, int]
Clock = Callable[[], float]


class Tally:
    """Values counted in classes, to be sent from time to time."""

    def __init__(self) -> None:
        self._counts: Counts = {}

    def add(self, value: float) -> None:
        index = class_of(value)
        self._counts[index] = self._counts.get(index, 0) + 1

    def take(self) -> Counts:
        """The counts since the last call."""
        counts, self._counts = self._counts, {}
        return counts


class Spread:
    """How values were spread over the last minute: counted in classes, so that it costs the same at any rate."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._slices: Deque[Tuple[int, Counts]] = deque()

    def add(self, value: float) -> None:
        self.merge({class_of(value): 1})

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add the counts of another one."""
        number = int(self._clock() / _SLICE_S)
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append((number, {}))
            self._drop_old(number)
        current = self._slices[-1][1]
        for index, count in counts.items():
            current[index] = current.get(index, 0) + count

    def percentiles(self, *shares: float) -> List[float]:
        """The values below which these shares of the last minute lie; 0 if there were none."""
        self._drop_old(int(self._clock() / _SLICE_S))
        merged: Counts = {}
        for _, counts in self._slices:
            for index, count in counts.items():
                merged[index] = merged.get(index, 0) + count
        total = sum(merged.values())
        return [_at(merged, share * total) for share in shares]

    @property
    def count(self) -> int:
        """The number of values in the last minute."""
        self._drop_old(int(self._clock() / _SLICE_S))
        return sum(sum(counts.values()) for _, counts in self._slices)

    @property
    def mean(self) -> float:
        """The approximate mean of the last minute: classes are counted by their upper bounds."""
        total = self.count
        amount = sum(BOUNDS[index] * count for _, counts in self._slices for index, count in counts.items())
        return amount / total if total else 0.0

    def _drop_old(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - _WINDOW_S / _SLICE_S:
            self._slices.popleft()


def class_of(value: float) -> int:
    """The class in which a value is counted."""
    return min(bisect_left(BOUNDS, value), len(BOUNDS) - 1)


def _at(counts: Mapping[int, int], wanted: float) -> float:
    seen = 0
    for index in sorted(counts):
        seen += counts[index]
        if seen >= wanted:
            return BOUNDS[index]
    return 0.0


class Traffic:
    """The outcomes of the requests to one deployment."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.latency_ms = Spread(clock)
        self.queue_ms = Spread(clock)
        self.codes: Counts = {}

    def note(self, status: int, took_s: float) -> None:
        self.codes[status] = self.codes.get(status, 0) + 1
        self.latency_ms.add(took_s * 1000)

    @property
    def rate(self) -> float:
        """Requests a second, over the last minute or since the start."""
        return self.latency_ms.count / max(_SLICE_S, min(_WINDOW_S, self._clock() - self._began))
