"""The gangs that wait for one cluster, in the order in which they are looked at."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator

from muster.control.scheduling.model import UNKNOWN, Gang, Need


class Queue:
    """Sorted by priority and time of arrival; knows how many gangs there are of each shape."""

    def __init__(self, gangs: Iterable[Gang] = ()) -> None:
        self._gangs = sorted(gangs, key=_order)
        self._shortest = sorted(self._gangs, key=_length)
        self.shapes: Counter[Need] = Counter(gang.need for gang in self._gangs)

    def add(self, gang: Gang) -> None:
        bisect.insort(self._gangs, gang, key=_order)
        bisect.insort(self._shortest, gang, key=_length)
        self.shapes[gang.need] += 1

    def remove(self, gang: Gang) -> None:
        del self._gangs[self.position(gang)]
        del self._shortest[bisect.bisect_left(self._shortest, _length(gang), key=_length)]
        self.shapes[gang.need] -= 1
        if not self.shapes[gang.need]:
            del self.shapes[gang.need]

    def position(self, gang: Gang) -> int:
        """How many gangs are before it."""
        return bisect.bisect_left(self._gangs, gang.order, key=_order)

    def shortest_first(self) -> Iterator[Gang]:
        """By priority and declared time limit: the order in which gangs may start early."""
        return iter(self._shortest)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs)

    def __len__(self) -> int:
        return len(self._gangs)


def _order(gang: Gang) -> tuple[float, int]:
    return gang.order


def _length(gang: Gang) -> tuple[int, float, tuple[float, int]]:
    return (-gang.priority, UNKNOWN if gang.limit_s is None else gang.limit_s, gang.order)
