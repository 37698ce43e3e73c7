"""What is free on the nodes, indexed so that "does this shape fit?" costs one look-up and a start a few.

Nodes lie in pools that own CPUs and GPUs: most nodes are a pool of their own, simulated nodes may share their
machine's. Pools in the same condition lie in one bucket, so a question is answered per bucket, not per node.
CPU ranks may outnumber cores only for a gang that is alone in its pool; GPUs are a hard limit. A GPU is held whole, or
in parts that together are at most all of it; what is left of it is counted in `UNITS`. Serving gangs hold no
CPUs (their ranks count as none), so a pool with nothing else counts as empty.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from muster.control.scheduling.model import Need, Node, Part, Place, Running

UNITS = 10_000
"""Of one GPU: parts of GPUs are added and compared as whole numbers."""
_LOOK_S, _LOOK_SHARE = 60.0, 0.2
"""When the likely end of a gang is estimated again."""


class Condition(NamedTuple):
    """All that decides how much of a gang a pool can take; sorts by preference: the fullest first."""

    idle: bool
    free_gpus: int
    free_slots: int
    gpus: int
    members: int
    left: tuple[int, ...] = ()
    """What is left of the GPUs that are held in part, in units."""


class Pool:
    """CPUs and GPUs that one node owns, or several share."""

    __slots__ = ("cpus", "free_gpus", "gpus", "holders", "host", "index", "left", "members", "name", "parts", "ranks")

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.name = node.pool_name
        self.host = node.host
        self.cpus = node.cpus
        self.gpus = node.gpus
        self.free_gpus = list(node.gpus)
        self.left: dict[str, int] = {}
        self.ranks = 0
        self.parts = 0
        self.holders: set[str] = set()
        self.members: dict[str, list[Node]] = {}

    def condition(self, cluster: str) -> Condition:
        slots = self.cpus - self.ranks
        values = (
            self.parts == 0,
            len(self.free_gpus),
            slots if slots > 0 else 0,
            len(self.gpus),
            len(self.members[cluster]),
            tuple(sorted(self.left.values())) if self.left else (),
        )
        return Condition._make(values)


def fitting(pool: Condition, need: Need) -> int:
    """How many parts of a gang a pool in this condition can take."""
    idle, free_gpus, free_slots, gpus, members, left = pool
    nodes, ranks, wanted, share = need
    parts = members if members < nodes else nodes
    if not idle and free_slots < parts * ranks:
        parts = free_slots // ranks
    if wanted is None:
        # All GPUs are shared out between the parts, so fewer parts want more each.
        while parts and parts * (gpus // parts) > free_gpus:
            parts -= 1
    elif share < 1:
        each = units(share)
        parts = min(parts, free_gpus * (UNITS // each) + sum(rest // each for rest in left))
    elif free_gpus < parts * wanted:
        parts = free_gpus // wanted
    return parts


def units(share: float) -> int:
    """A part of a GPU in units."""
    return round(share * UNITS)


class _Cluster:
    """The pools of one cluster by their condition."""

    def __init__(self) -> None:
        self.conditions: dict[int, Condition] = {}
        self.sizes: dict[Condition, int] = {}
        self.reserved: frozenset[int] = frozenset()
        self._sorted: dict[Condition, list[int]] = {}
        self._kept: Counter[Condition] = Counter()
        self._counted: dict[tuple[Need, bool], int] = {}

    def put(self, index: int, condition: Condition) -> None:
        old = self.conditions.get(index)
        if old == condition:
            return
        if old is not None:
            self.sizes[old] -= 1
            if self.sizes[old]:
                alike = self._sorted[old]
                del alike[bisect.bisect_left(alike, index)]
            else:
                del self.sizes[old], self._sorted[old]
        self.conditions[index] = condition
        if condition in self.sizes:
            self.sizes[condition] += 1
            bisect.insort(self._sorted[condition], index)
        else:
            self.sizes[condition] = 1
            self._sorted[condition] = [index]
        self._counted.clear()
        if index in self.reserved and old is not None:
            self._kept[old] -= 1
            self._kept[condition] += 1

    def reserve(self, indexes: Iterable[int]) -> None:
        self.reserved = frozenset(indexes)
        self._kept = Counter(self.conditions[index] for index in self.reserved)
        self._counted.clear()

    def count(self, need: Need, reserved_too: bool) -> int:
        found = self._counted.get((need, reserved_too))
        if found is None:
            kept = {} if reserved_too else self._kept
            sizes = self.sizes.items()
            found = sum(fitting(condition, need) * (size - kept.get(condition, 0)) for condition, size in sizes)
            self._counted[need, reserved_too] = found
        return found

    def candidates(self, need: Need, reserved: bool) -> Iterator[int]:
        """Pools that can take something of a gang, the fullest first, lowest first among equals."""
        for condition in sorted(self.sizes):
            if fitting(condition, need):
                for index in self._sorted[condition]:
                    if (index in self.reserved) == reserved:
                        yield index


class Capacity:
    """The nodes of all clusters and the gangs that hold them; changes with every `hold` and `let_go`."""

    def __init__(self, nodes: Mapping[str, Sequence[Node]]) -> None:
        self.pools: list[Pool] = []
        self.running: dict[str, Running] = {}
        self.stopping: dict[str, Running] = {}
        """Gangs that have been told to stop."""
        self.checkpointed: dict[str, Running] = {}
        """Gangs that have saved a checkpoint."""
        self._of_priority: dict[int, dict[str, Running]] = {}
        self._by_name: dict[str, Pool] = {}
        self._pool_of: dict[str, Pool] = {}
        self._on_host: dict[str, list[Pool]] = defaultdict(list)
        self._clusters: dict[str, _Cluster] = {name: _Cluster() for name in nodes}
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self._outdated: list[tuple[float, str]] = []
        self._ever: dict[tuple[str, Need], int] = {}
        self._kinds: dict[str, Counter[Condition]] = {}
        for cluster, members in nodes.items():
            for node in members:
                self._add(cluster, node)
        for pool in self.pools:
            self._refresh(pool)

    def nodes(self, cluster: str) -> list[Node]:
        """The nodes of a cluster, in order."""
        if cluster not in self._clusters:
            return []
        return [node for index in self._clusters[cluster].conditions for node in self.pools[index].members[cluster]]

    def pool_of(self, node: str) -> Pool | None:
        return self._pool_of.get(node)

    def pools_of(self, cluster: str) -> list[Pool]:
        return [self.pools[index] for index in self._clusters[cluster].conditions] if cluster in self._clusters else []

    def has(self, pools: Iterable[str]) -> bool:
        """Whether all of these pools are still there."""
        return all(name in self._by_name for name in pools)

    def named(self, pools: Iterable[str]) -> list[Pool]:
        return [self._by_name[name] for name in pools]

    def holders(self, pools: Iterable[str]) -> list[Running]:
        """The gangs that hold something of these pools."""
        found = {run_id for name in pools for run_id in self._by_name[name].holders}
        return [self.running[run_id] for run_id in sorted(found)]

    def nodes_of(self, apart: str) -> frozenset[str]:
        """The nodes of the gangs in this anti-affinity group."""
        return frozenset(part.node for item in self.running.values() if item.apart == apart for part in item.parts)

    def running_up_to(self, priority: int) -> Iterator[Running]:
        """The running gangs of this priority and of lower ones."""
        return (
            item for each in sorted(self._of_priority) if each <= priority for item in self._of_priority[each].values()
        )

    def likely_ends(self, now: float) -> Iterator[tuple[float, Running]]:
        """The running gangs by their likely end; estimated again less often the longer they run."""
        while self._outdated and self._outdated[0][0] <= now:
            _, run_id = heapq.heappop(self._outdated)
            if run_id in self.running:
                self._forget_end(run_id)
                self._note_end(self.running[run_id], now)
        return ((max(at, now), self.running[run_id]) for at, run_id in self._ends)

    def count(self, cluster: str, need: Need, reserved_too: bool = True, excluded: Collection[str] = ()) -> int:
        """How many parts of a gang could start now; at least `need.nodes` means that all of it fits."""
        if cluster not in self._clusters:
            return 0
        found = self._clusters[cluster].count(need, reserved_too)
        return found - self._lost_to(excluded, cluster, need, reserved_too) if excluded else found

    def ever(self, cluster: str, need: Need, excluded: Collection[str] = ()) -> int:
        """How many parts could start if nothing ran."""
        if excluded:
            return sum(empty(pool, cluster, need, excluded) for pool in self.pools_of(cluster))
        if (cluster, need) not in self._ever:
            kinds = self._kinds_of(cluster).items()
            self._ever[cluster, need] = sum(fitting(kind, need) * number for kind, number in kinds)
        return self._ever[cluster, need]

    def gpus_per_node(self, cluster: str) -> int:
        """Of the first node: the nodes of a cluster are of one kind."""
        index = next(iter(self._clusters[cluster].conditions), None) if cluster in self._clusters else None
        return 0 if index is None else len(self.pools[index].gpus)

    def pick(
        self,
        cluster: str,
        need: Need,
        reserved_too: bool = True,
        excluded: Collection[str] = (),
        reserved_first: bool = False,
    ) -> tuple[Place, ...]:
        """Places for a gang that fits: fullest nodes first, so that whole nodes stay free."""
        index = self._clusters[cluster]
        places: list[Place] = []
        for reserved in (reserved_first, not reserved_first) if reserved_too else (False,):
            if len(places) == need.nodes:
                break
            for number in index.candidates(need, reserved):
                condition = index.conditions[number]
                self._on_pool(self.pools[number], cluster, condition, need, excluded, places)
                if len(places) == need.nodes:
                    break
        return tuple(places)

    def hold(self, running: Running, now: float | None = None) -> None:
        """A gang has nodes."""
        self.running[running.run_id] = running
        self._of_priority.setdefault(running.priority, {})[running.run_id] = running
        if running.stopping:
            self.stopping[running.run_id] = running
        if running.checkpoints:
            self.checkpointed[running.run_id] = running
        self._note_end(running, running.since if now is None else now)
        for part in running.parts:
            pool = self._pool_of.get(part.node)
            if pool is not None:
                pool.ranks += part.ranks
                pool.parts += part.ranks > 0
                pool.holders.add(running.run_id)
            self._move_gpus(part, pool, taken=True)

    def let_go(self, run_id: str) -> None:
        """A gang has ended."""
        running = self.running.pop(run_id)
        del self._of_priority[running.priority][run_id]
        self.stopping.pop(run_id, None)
        self.checkpointed.pop(run_id, None)
        self._forget_end(run_id)
        for part in running.parts:
            pool = self._pool_of.get(part.node)
            if pool is not None:
                pool.ranks -= part.ranks
                pool.parts -= part.ranks > 0
                pool.holders.discard(run_id)
            self._move_gpus(part, pool, taken=False)

    def reserve(self, cluster: str, pools: Iterable[str] = ()) -> None:
        """Reserve pools for the first gang of a cluster's queue; no pools: end the reservation."""
        self._clusters[cluster].reserve([self._by_name[name].index for name in pools])

    def conditions(self, cluster: str) -> dict[int, Condition]:
        """The condition of each pool of a cluster, by its index."""
        return self._clusters[cluster].conditions

    def _kinds_of(self, cluster: str) -> Counter[Condition]:
        """How many pools of each kind a cluster would have if nothing ran."""
        if cluster not in self._kinds:
            self._kinds[cluster] = Counter(
                when_empty(pool, len(pool.members[cluster])) for pool in self.pools_of(cluster)
            )
        return self._kinds[cluster]

    def _note_end(self, running: Running, now: float) -> None:
        at = self._end_of[running.run_id] = running.likely_end(now)
        bisect.insort(self._ends, (at, running.run_id))
        if running.length is not None and at < running.until:
            again_s = max(_LOOK_S, _LOOK_SHARE * (at - now), _LOOK_SHARE * (now - running.since))
            heapq.heappush(self._outdated, (now + again_s, running.run_id))

    def _forget_end(self, run_id: str) -> None:
        self._ends.pop(bisect.bisect_left(self._ends, (self._end_of.pop(run_id), run_id)))

    def _add(self, cluster: str, node: Node) -> None:
        pool = self._by_name.get(node.pool_name)
        if pool is None:
            pool = self._by_name[node.pool_name] = Pool(len(self.pools), node)
            self.pools.append(pool)
            self._on_host[node.host].append(pool)
        pool.members.setdefault(cluster, []).append(node)
        self._pool_of[node.name] = pool

    def _on_pool(
        self,
        pool: Pool,
        cluster: str,
        condition: Condition,
        need: Need,
        excluded: Collection[str],
        places: list[Place],
    ) -> None:
        """Add as many places on a pool as it can take of what the gang still needs."""
        members = pool.members[cluster]
        if excluded:
            members = [node for node in members if node.name not in excluded]
            condition = condition._replace(members=len(members))
        parts = fitting(condition, need._replace(nodes=need.nodes - len(places)) if places else need)
        if not parts:
            return
        if need.share < 1:
            places.extend(_in_part(pool, members[:parts], need))
            return
        share = len(pool.gpus) // parts if need.gpus is None else need.gpus
        for number, node in enumerate(members[:parts]):
            places.append(Place(node, need.ranks, tuple(pool.free_gpus[number * share : (number + 1) * share])))

    def _lost_to(self, excluded: Collection[str], cluster: str, need: Need, reserved_too: bool) -> int:
        lost = 0
        for pool in {id(pool): pool for name in excluded if (pool := self._pool_of.get(name))}.values():
            kept = pool.index in self._clusters[cluster].reserved
            if cluster not in pool.members or (kept and not reserved_too):
                continue
            condition = pool.condition(cluster)
            left = sum(node.name not in excluded for node in pool.members[cluster])
            lost += fitting(condition, need) - fitting(condition._replace(members=left), need)
        return lost

    def _move_gpus(self, part: Part, pool: Pool | None, taken: bool) -> None:
        """GPUs belong to a host: taking one removes it from every pool that offers it."""
        if (
            part.share == 1
            and taken
            and pool is not None
            and part.gpus == pool.gpus
            and len(self._on_host[part.host]) == 1
        ):
            pool.free_gpus = []
            self._refresh(pool)
            return
        touched = {pool.index: pool} if pool is not None else {}
        for gpu in part.gpus:
            for owner in self._on_host.get(part.host, ()):
                if gpu not in owner.gpus:
                    continue
                touched[owner.index] = owner
                if part.share < 1:
                    _move_part(owner, gpu, -units(part.share) if taken else units(part.share))
                elif taken and gpu in owner.free_gpus:
                    owner.free_gpus.remove(gpu)
                elif not taken and gpu not in owner.free_gpus:
                    _free(owner, gpu)
        for owner in touched.values():
            self._refresh(owner)

    def _refresh(self, pool: Pool) -> None:
        for cluster in pool.members:
            self._clusters[cluster].put(pool.index, pool.condition(cluster))


def _in_part(pool: Pool, members: Sequence[Node], need: Need) -> Iterator[Place]:
    """A part of one GPU for each node, on the fullest GPU with enough left, so that whole GPUs stay free."""
    each, left, free = units(need.share), dict(pool.left), list(pool.free_gpus)
    for node in members:
        enough = [gpu for gpu, rest in left.items() if rest >= each]
        gpu = min(enough, key=lambda item: (left[item], pool.gpus.index(item))) if enough else free.pop(0)
        left[gpu] = left.get(gpu, UNITS) - each
        yield Place(node, need.ranks, (gpu,), need.share)


def _move_part(pool: Pool, gpu: str, change: int) -> None:
    """Take a part of a GPU, or give it back; a GPU of which nothing is held is free."""
    if gpu in pool.free_gpus:
        if change > 0:
            return
        pool.free_gpus.remove(gpu)
        pool.left[gpu] = UNITS
    elif gpu not in pool.left:
        # It is held whole.
        return
    pool.left[gpu] += change
    if pool.left[gpu] >= UNITS:
        del pool.left[gpu]
        _free(pool, gpu)


def _free(pool: Pool, gpu: str) -> None:
    pool.free_gpus = [item for item in pool.gpus if item == gpu or item in pool.free_gpus]


def empty(pool: Pool, cluster: str, need: Need, excluded: Collection[str]) -> int:
    """How many parts of a gang the pool could take if nothing ran on it."""
    if cluster not in pool.members:
        return 0
    return fitting(when_empty(pool, sum(node.name not in excluded for node in pool.members[cluster])), need)


def when_empty(pool: Pool, members: int) -> Condition:
    """The condition of a pool on which nothing runs."""
    return Condition(True, len(pool.gpus), pool.cpus, len(pool.gpus), members)
