"""When the first waiting gang can start at the latest, on which nodes, and which gangs it may end for that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from muster.control.scheduling.capacity import UNITS, Capacity, Condition, Pool, empty, fitting, units
from muster.control.scheduling.model import UNKNOWN, Gang, Head, Need, Part, Running
from muster.defaults import GUEST_S, KEEP_FACTOR, LIKELY_SHARE, PAUSE_FOR_S, PAUSE_RAN_S, PAUSE_WAITED_S, START_MARGIN_S

_CASES = (1 / 6, 1 / 2, 5 / 6)


def reserve_for(
    first: Head, capacity: Capacity, now: float, victims: Collection[Running] = (), kept: Collection[str] = ()
) -> Head:
    """When the first gang is likely to fit, and at the latest by declared limits, and the nodes reserved for it.

    Once nobody may pass it any more it keeps its nodes, so that no new estimate moves it to others.
    """
    gang = first.gang
    if first.is_closed(now) and kept and capacity.has(kept) and not victims:
        same = frozenset(kept)
        if _enough(gang, same, capacity):
            return _head(first, same, capacity.holders(same), now)
    future = _Future(capacity, gang)
    ending = {item.run_id for item in victims} | capacity.stopping.keys()
    for run_id in sorted(ending):
        future.end(capacity.running[run_id])
    if ending and future.total >= gang.need.nodes:
        return Head(gang, now, future.pools(gang.need.nodes), now)
    ended: set[str] = set()
    for likely_at, running in capacity.likely_ends(now):
        if running.run_id in ending:
            continue
        future.end(running)
        ended.add(running.run_id)
        if future.total >= gang.need.nodes:
            if likely_at == UNKNOWN:
                break
            pools = future.pools(gang.need.nodes)
            holders = [item for item in capacity.holders(pools) if item.run_id in ended]
            if _keeps(kept, pools, holders, capacity, now):
                pools, holders = frozenset(kept), capacity.holders(kept)
            return _head(first, pools, holders, now)
    # Nothing at all is known of a gang that holds its nodes: every node is reserved.
    return Head(gang, UNKNOWN, frozenset(pool.name for pool in capacity.pools_of(gang.cluster)))


def _enough(gang: Gang, pools: frozenset[str], capacity: Capacity) -> bool:
    """Whether the gang fits on these pools once they are empty."""
    return sum(empty(pool, gang.cluster, gang.need, gang.excluded) for pool in capacity.named(pools)) >= gang.need.nodes


def would_fit_first(gang: Gang, capacity: Capacity, first_at: float) -> bool:
    """Whether it would fit now if nobody behind it had started since it became the head of the queue."""
    first = Head(gang, UNKNOWN, first_at=first_at)
    some = [item for item in capacity.running.values() if item.since >= first_at and item.cluster == gang.cluster]
    late = [item for item in some if is_guest(item, first)]
    if not late:
        return False
    future = _Future(capacity, gang)
    for item in late:
        future.end(item)
    return future.total >= gang.need.nodes


def _keeps(
    kept: Collection[str], sooner: frozenset[str], holders: Collection[Running], capacity: Capacity, now: float
) -> bool:
    """Whether it keeps its nodes, since draining them has cost much: others are unlikely to be free much sooner."""
    if not kept or sooner == kept or not capacity.has(kept) or all(item.until != UNKNOWN for item in holders):
        return False
    patience_s = KEEP_FACTOR * max(START_MARGIN_S, _likely_at(holders, now) - now)
    return _likely_at(capacity.holders(kept), now) - now <= patience_s


def _likely_at(holders: Collection[Running], now: float, share: float = LIKELY_SHARE) -> float:
    """The time by which all of them have ended in this share of cases."""
    return max((item.likely_end(now, share) for item in holders), default=now)


def _head(first: Head, pools: frozenset[str], holders: Collection[Running], now: float) -> Head:
    """What is known of a gang's start on these nodes, once those who hold them have ended."""
    gang = first.gang
    starts_by = max((item.until for item in holders), default=now)
    likely_at = _likely_at(holders, now)
    if starts_by != UNKNOWN:
        return Head(gang, starts_by, pools, likely_at)
    # Gangs that have passed it do not count towards the wait it has anyway, or they would let others pass in turn.
    # One that has run for long does count: it is a long one, and nothing is won by waiting for it alone.
    before = [item for item in holders if not is_guest(item, first) or now - item.since >= GUEST_S]
    cases = tuple(_likely_at(before, now, share) for share in _CASES)
    return Head(gang, starts_by, pools, likely_at, cases)


def is_guest(running: Running, first: Head) -> bool:
    """Whether it has passed this gang: it comes behind it and started since this gang became the head."""
    return running.since >= first.first_at and running.order > first.gang.order


def victims_for(gang: Gang, capacity: Capacity, allowed: bool, now: float, pauses_only: bool = False) -> list[Running]:
    """Gangs that must end so that this one can start; none where even that would not be enough.

    `pauses_only`: do not end gangs by priority, which only the head of the queue may.
    """
    future = _Future(capacity, gang)
    for running in capacity.stopping.values():
        future.end(running)
    may_pause = is_worth_a_pause(gang, now)
    candidates = [
        running
        for running in capacity.running_up_to(gang.priority if may_pause else gang.priority - 1)
        if running.cluster == gang.cluster
        and not running.stopping
        and (allowed if running.preemptible is None else running.preemptible)
        and ((not pauses_only and _is_below(running, gang)) or (may_pause and _may_pause(running, gang, now)))
    ]
    chosen: list[Running] = []
    # The gangs with the least to lose end first.
    for running in sorted(candidates, key=lambda item: (item.priority, -item.since)):
        if future.total >= gang.need.nodes:
            break
        future.end(running)
        chosen.append(running)
    if future.total < gang.need.nodes:
        return []
    return _drop_unneeded(gang, capacity, chosen)


def _is_below(running: Running, gang: Gang) -> bool:
    """Whether it has a lower priority and comes later: one that comes earlier would only take its nodes back."""
    return running.priority < gang.priority and running.order > gang.order


def _may_pause(running: Running, gang: Gang, now: float) -> bool:
    """Whether it is long, resumes from a checkpoint, and so can make room for a gang that is worth a pause."""
    return (
        is_pausable(running, now)
        and running.priority <= gang.priority
        and running.likely_end(now) - now > 2 * gang.likely_s
    )


def is_pausable(running: Running, now: float) -> bool:
    """Whether it resumes from a checkpoint, and has run for a while since it last began."""
    return running.checkpoints and not running.stopping and now - running.since >= PAUSE_RAN_S


def is_worth_a_pause(gang: Gang, now: float) -> bool:
    """Whether it is likely to be short and has waited long."""
    return gang.likely_s <= PAUSE_FOR_S and now - gang.queued_at >= PAUSE_WAITED_S


def _drop_unneeded(gang: Gang, capacity: Capacity, chosen: list[Running]) -> list[Running]:
    """Drop, oldest first, the gangs that need not end after all."""
    kept = list(chosen)
    for running in reversed(chosen):
        fewer = [item for item in kept if item is not running]
        future = _Future(capacity, gang)
        for item in (*capacity.stopping.values(), *fewer):
            future.end(item)
        if future.total >= gang.need.nodes:
            kept = fewer
    return kept


@dataclass(slots=True)
class _Drained:
    """A pool after some of its holders have ended."""

    pool: Pool
    parts: int
    gpus: int
    slots: int
    members: int
    fits: int
    left: dict[str, int]
    """What is left of GPUs that are held in part."""

    def end(self, part: Part) -> None:
        """A part of a gang ends."""
        self.parts -= part.ranks > 0
        self.gpus += self.give_back(part) if part.share != 1 else len(part.gpus)
        slots = self.slots + part.ranks
        self.slots = slots if slots < self.pool.cpus else self.pool.cpus

    def give_back(self, part: Part) -> int:
        """Add what it held of one GPU; returns how many are free since."""
        whole = 0
        for gpu in part.gpus:
            self.left[gpu] = self.left.get(gpu, 0) + units(part.share)
            if self.left[gpu] >= UNITS:
                del self.left[gpu]
                whole += 1
        return whole

    @property
    def condition(self) -> Condition:
        left = tuple(sorted(self.left.values())) if self.left else ()
        return Condition._make((self.parts == 0, self.gpus, self.slots, len(self.pool.gpus), self.members, left))


class _Future:
    """How much of a gang fits as the holders of its nodes end, one after another."""

    def __init__(self, capacity: Capacity, gang: Gang) -> None:
        self._capacity = capacity
        self._cluster = gang.cluster
        self._need: Need = gang.need
        self._least = 0 if gang.need.share < 1 else gang.need.gpus
        """GPUs without which nothing fits on a node; None: all of it."""
        self._excluded = gang.excluded
        self._conditions = capacity.conditions(gang.cluster)
        self._after: dict[int, _Drained] = {}
        self.total = capacity.count(gang.cluster, gang.need, excluded=gang.excluded)

    def end(self, running: Running) -> None:
        need, pool_of = self._need, self._capacity.pool_of
        for part in running.parts:
            pool = pool_of(part.node)
            if pool is None or self._cluster not in pool.members:
                continue
            after = self._after.get(pool.index)
            if after is None:
                now = self._now(pool)
                fits = fitting(now, need)
                after = _Drained(pool, pool.parts, now.free_gpus, now.free_slots, now.members, fits, dict(pool.left))
                self._after[pool.index] = after
            after.end(part)
            # Most often too few GPUs are free on the node afterwards: that is seen without counting.
            if after.gpus < (self._least if self._least is not None else len(pool.gpus) // max(1, after.members)):
                continue
            fits = fitting(after.condition, need)
            self.total += fits - after.fits
            after.fits = fits

    def pools(self, wanted: int) -> frozenset[str]:
        """Enough pools for the gang; those that become free last are taken first, so that the others stay open."""
        names: set[str] = set()
        for after in reversed(self._after.values()):
            if wanted <= 0:
                return frozenset(names)
            if after.fits:
                names.add(after.pool.name)
                wanted -= after.fits
        known: dict[Condition, int] = {}
        # Small gangs fill the lowest nodes; this one takes the highest.
        for index, condition in reversed(self._conditions.items()) if wanted > 0 else ():
            fits = known.get(condition)
            if fits is None:
                fits = known[condition] = fitting(condition, self._need)
            if not fits or index in self._after:
                continue
            pool = self._capacity.pools[index]
            fits = fitting(self._now(pool), self._need) if self._excluded else fits
            if fits:
                names.add(pool.name)
                wanted -= fits
            if wanted <= 0:
                break
        return frozenset(names)

    def _now(self, pool: Pool) -> Condition:
        condition = self._conditions[pool.index]
        if not self._excluded:
            return condition
        members = sum(node.name not in self._excluded for node in pool.members[self._cluster])
        return condition._replace(members=members)
