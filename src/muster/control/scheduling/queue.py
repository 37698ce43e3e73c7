"""The gangs that wait for one cluster, in queue order."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from muster.control.scheduling.model import UNKNOWN, Decision, Gang, Need
from muster.control.scheduling.shares import Standing

_Lane = tuple[Need, str]
"""Gangs of one shape and one user; which of them is the shortest never changes."""


@dataclass(frozen=True, slots=True)
class Passed:
    """How often a gang has been passed over on the nodes reserved for it, and since when."""

    times: int = 0
    pools: frozenset[str] = frozenset()
    """The nodes that were reserved for it last."""
    first_at: float | None = None
    """When it became the head of the queue."""
    due_at: float = UNKNOWN
    """When it would have started if nobody had passed it; infinite until that time comes."""

    def moved(self, jump_s: float) -> Passed:
        """The same on a clock that was set by so much."""
        first_at = None if self.first_at is None else self.first_at + jump_s
        return replace(self, first_at=first_at, due_at=self.due_at + jump_s)


NEVER = Passed()


class Queue:
    """Sorted by priority and time of arrival; knows how many gangs there are of each shape."""

    def __init__(self, gangs: Iterable[Gang] = (), passed: Mapping[str, Passed] | None = None) -> None:
        self._gangs = sorted(gangs, key=_order)
        known = passed or {}
        self._passed = {gang.run_id: known[gang.run_id] for gang in self._gangs if gang.run_id in known}
        self._of_user: dict[str, list[Gang]] = {}
        self._short_lanes: dict[_Lane, list[Gang]] = {}
        self.shapes: dict[Need, int] = {}
        for gang in self._gangs:
            self._of_user.setdefault(gang.user, []).append(gang)
            self._short_lanes.setdefault((gang.need, gang.user), []).append(gang)
            self.shapes[gang.need] = self.shapes.get(gang.need, 0) + 1
        for lane in self._short_lanes.values():
            lane.sort(key=_length)

    def add(self, gang: Gang, passed: Passed | None = None) -> None:
        if passed is not None:
            self._passed[gang.run_id] = passed
        bisect.insort(self._gangs, gang, key=_order)
        bisect.insort(self._of_user.setdefault(gang.user, []), gang, key=_order)
        bisect.insort(self._short_lanes.setdefault((gang.need, gang.user), []), gang, key=_length)
        self.shapes[gang.need] = self.shapes.get(gang.need, 0) + 1

    def remove(self, gang: Gang) -> None:
        del self._gangs[self.position(gang)]
        key = (gang.need, gang.user)
        mine, short = self._of_user[gang.user], self._short_lanes[key]
        del mine[bisect.bisect_left(mine, gang.order, key=_order)]
        del short[bisect.bisect_left(short, _length(gang), key=_length)]
        if not mine:
            del self._of_user[gang.user]
        if not short:
            del self._short_lanes[key]
        self.shapes[gang.need] -= 1
        if not self.shapes[gang.need]:
            del self.shapes[gang.need]
        self._passed.pop(gang.run_id, None)

    def position(self, gang: Gang) -> int:
        """How many gangs are ahead of it, fair shares aside."""
        return bisect.bisect_left(self._gangs, gang.order, key=_order)

    def passed(self, run_id: str) -> Passed:
        """How often it has been passed over so far."""
        return self._passed.get(run_id, NEVER)

    @property
    def all_passed(self) -> dict[str, Passed]:
        """The records of all gangs that were passed over, or first; callable from any thread."""
        return dict(self._passed)

    def note(self, decision: Decision) -> dict[str, Passed]:
        """Record how often the head was passed over, and the nodes reserved for it; returns it if that is new."""
        head = decision.heads.get(self._gangs[0].cluster) if self._gangs else None
        if head is None:
            return {}
        run_id = head.gang.run_id
        old = self.passed(run_id)
        times = old.times + sum(item.run_id == run_id for item in decision.overtakings)
        new = self._passed[run_id] = Passed(times, head.pools, head.first_at, head.due_at)
        return {} if new == old else {run_id: new}

    def in_order(self, standings: Mapping[str, Standing]) -> Iterator[Gang]:
        """By priority, arrival and what each user has used lately."""
        if not standings:
            return iter(self._gangs)
        lanes = [_behind(gangs, standings.get(user)) for user, gangs in self._of_user.items()]
        return (gang for _, _, gang in heapq.merge(*lanes))

    def shortest_first(self, standings: Mapping[str, Standing], hopeless: Collection[Need]) -> Iterator[Gang]:
        """By priority and likely length: the order in which gangs may start early. `hopeless` may grow meanwhile."""
        weights = {user: standing.weight for user, standing in standings.items()}
        heads: list[tuple[int, float, tuple[float, int], int, list[Gang]]] = []
        for (need, user), lane in self._short_lanes.items():
            if need not in hopeless:
                gang = lane[0]
                heads.append((-gang.priority, gang.likely_s * weights.get(user, 1.0), gang.order, 0, lane))
        heapq.heapify(heads)
        while heads:
            *_, index, lane = heads[0]
            gang = lane[index]
            if gang.need not in hopeless:
                yield gang
            index += 1
            if index == len(lane) or gang.need in hopeless:
                heapq.heappop(heads)
                continue
            gang = lane[index]
            place = gang.likely_s * weights.get(gang.user, 1.0)
            heapq.heapreplace(heads, (-gang.priority, place, gang.order, index, lane))

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs)

    def __len__(self) -> int:
        return len(self._gangs)


def _behind(gangs: Iterable[Gang], standing: Standing | None) -> Iterator[tuple[float, int, Gang]]:
    """The gangs of one user with their places, shifted back by the user's standing."""
    behind_s = 0.0 if standing is None else standing.behind_s
    return ((gang.order[0] + behind_s, gang.seq, gang) for gang in gangs)


def _order(gang: Gang) -> tuple[float, int]:
    return gang.order


def _length(gang: Gang) -> tuple[int, float, tuple[float, int]]:
    return (-gang.priority, gang.likely_s, gang.order)
