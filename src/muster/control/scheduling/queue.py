"""The gangs that wait for one cluster, in the order in which they are looked at."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from muster.control.scheduling.model import UNKNOWN, Decision, Gang, Need
from muster.control.scheduling.shares import Standing

_Lane = tuple[Need, str]
"""Gangs of one shape and one user; their order among each other never changes."""


@dataclass(frozen=True, slots=True)
class Passed:
    """How often a gang has been passed over on the nodes kept for it, and since when."""

    times: int = 0
    pools: frozenset[str] = frozenset()
    """The nodes that were kept for it last."""
    first_at: float | None = None
    """When it became the first that waits."""
    due_at: float = UNKNOWN
    """When it would have started if nobody had passed it; infinite while that has not come."""


NEVER = Passed()


class Queue:
    """Sorted by priority and time of arrival; knows how many gangs there are of each shape."""

    def __init__(self, gangs: Iterable[Gang] = (), passed: Mapping[str, Passed] | None = None) -> None:
        self._gangs = sorted(gangs, key=_order)
        known = passed or {}
        self._passed = {gang.run_id: known[gang.run_id] for gang in self._gangs if gang.run_id in known}
        self._lanes: dict[_Lane, list[Gang]] = {}
        self._short_lanes: dict[_Lane, list[Gang]] = {}
        self.shapes: dict[Need, int] = {}
        for gang in self._gangs:
            self._lanes.setdefault((gang.need, gang.user), []).append(gang)
            self.shapes[gang.need] = self.shapes.get(gang.need, 0) + 1
        self._short_lanes = {key: sorted(lane, key=_length) for key, lane in self._lanes.items()}

    def add(self, gang: Gang) -> None:
        bisect.insort(self._gangs, gang, key=_order)
        key = (gang.need, gang.user)
        bisect.insort(self._lanes.setdefault(key, []), gang, key=_order)
        bisect.insort(self._short_lanes.setdefault(key, []), gang, key=_length)
        self.shapes[gang.need] = self.shapes.get(gang.need, 0) + 1

    def remove(self, gang: Gang) -> None:
        del self._gangs[self.position(gang)]
        key = (gang.need, gang.user)
        lane, short = self._lanes[key], self._short_lanes[key]
        del lane[bisect.bisect_left(lane, gang.order, key=_order)]
        del short[bisect.bisect_left(short, _length(gang), key=_length)]
        if not lane:
            del self._lanes[key], self._short_lanes[key]
        self.shapes[gang.need] -= 1
        if not self.shapes[gang.need]:
            del self.shapes[gang.need]
        self._passed.pop(gang.run_id, None)

    def position(self, gang: Gang) -> int:
        """How many gangs are before it, fair shares aside."""
        return bisect.bisect_left(self._gangs, gang.order, key=_order)

    def passed(self, run_id: str) -> Passed:
        """How often it has been passed over so far."""
        return self._passed.get(run_id, NEVER)

    @property
    def all_passed(self) -> dict[str, Passed]:
        """Of everybody who was passed over, or first; callable from any thread."""
        return dict(self._passed)

    def note(self, decision: Decision) -> None:
        """Remember who was passed over in a pass, and which nodes were kept for whom."""
        head = decision.heads.get(self._gangs[0].cluster) if self._gangs else None
        if head is None:
            return
        old = self.passed(head.gang.run_id)
        self._passed[head.gang.run_id] = Passed(old.times, head.pools, head.first_at, head.due_at)
        for item in decision.overtakings:
            if item.run_id in self._passed:
                old = self._passed[item.run_id]
                self._passed[item.run_id] = replace(old, times=old.times + 1)

    def in_order(self, standings: Mapping[str, Standing]) -> Iterator[Gang]:
        """By priority, arrival and what each user has used lately."""
        if not standings:
            return iter(self._gangs)

        def place(gang: Gang) -> tuple[float, int]:
            standing = standings.get(gang.user)
            return gang.order if standing is None else (gang.order[0] + standing.behind_s, gang.seq)

        return _merged(self._lanes, place, frozenset())

    def shortest_first(self, standings: Mapping[str, Standing], hopeless: Collection[Need]) -> Iterator[Gang]:
        """By priority and likely length: the order in which gangs may start early. `hopeless` may grow meanwhile."""

        def place(gang: Gang) -> tuple[float, ...]:
            standing = standings.get(gang.user)
            return (-gang.priority, gang.likely_s * (standing.weight if standing else 1.0), *gang.order)

        return _merged(self._short_lanes, place, hopeless)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs)

    def __len__(self) -> int:
        return len(self._gangs)


def _merged(
    lanes: Mapping[_Lane, list[Gang]], place: Callable[[Gang], tuple[float, ...]], hopeless: Collection[Need]
) -> Iterator[Gang]:
    """The gangs of all lanes by their place; lanes of hopeless shapes are left."""
    heads = [
        (place(lane[0]), number, 0, lane)
        for number, ((need, _), lane) in enumerate(lanes.items())
        if need not in hopeless
    ]
    heapq.heapify(heads)
    while heads:
        _, number, index, lane = heads[0]
        gang = lane[index]
        if gang.need in hopeless:
            heapq.heappop(heads)
            continue
        yield gang
        if gang.need in hopeless or index + 1 == len(lane):
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (place(lane[index + 1]), number, index + 1, lane))


def _order(gang: Gang) -> tuple[float, int]:
    return gang.order


def _length(gang: Gang) -> tuple[int, float, tuple[float, int]]:
    return (-gang.priority, gang.likely_s, gang.order)
