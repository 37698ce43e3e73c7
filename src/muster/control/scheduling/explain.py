"""Why a run waits, in a sentence, and when it starts at the latest."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.control.scheduling.capacity import UNITS, Capacity, fitting, units
from muster.control.scheduling.model import UNKNOWN, Gang, Head, Need, Node, Rules, Running
from muster.control.scheduling.queue import NEVER, Passed
from muster.defaults import LATE_S


@dataclass(frozen=True)
class Waiting:
    """Why a queued run waits, and until when."""

    reason: str
    starts_at: float | None = None
    """None: unknown."""


class Explanations:
    """The explanations for one state of the queues, each made on demand."""

    def __init__(
        self,
        queues: Mapping[str, Sequence[Gang]],
        find: Callable[[str], Gang | None],
        heads: Mapping[str, Head],
        reasons: Mapping[str, str],
        passed_over: frozenset[str],
        now: float,
    ) -> None:
        self._queues = queues
        self._find = find
        self._heads = heads
        self._reasons = reasons
        self._passed_over = passed_over
        self._now = now

    def of(self, run_id: str) -> Waiting | None:
        """None for a run that was not in the queue then."""
        gang = self._find(run_id)
        gangs = self._queues.get(gang.cluster, ()) if gang is not None else ()
        if gang is None:
            return None
        position = bisect.bisect_left(gangs, gang.order, key=lambda item: item.order)
        if position == len(gangs) or gangs[position].run_id != run_id:
            return None
        if gang.not_before > self._now:
            return Waiting(f"starts again at {clock(gang.not_before)} at the earliest", gang.not_before)
        head = self._heads.get(gang.cluster)
        if run_id in self._reasons:
            at = head.likely_at if head is not None and head.gang.run_id == run_id else UNKNOWN
            return Waiting(self._reasons[run_id], _known(at))
        if head is None:
            return Waiting(f"waits for the next pass over the queue of {gang.cluster}")
        others = f" and {position - 1:,} more" if position > 1 else ""
        return Waiting(f"waits behind {head.gang.title}{others} in the queue of {gang.cluster}")

    def wants_nodes(self, cluster: str, most: int) -> list[Gang]:
        """The first gangs of a queue that could start with more nodes."""
        gangs = self._queues.get(cluster, ())
        return [gang for gang in gangs[:most] if gang.run_id not in self._passed_over]


def head_reason(
    head: Head, capacity: Capacity, rules: Rules, now: float, gone_for: str = "", passed: Passed = NEVER
) -> str:
    """Why the first gang of a queue waits: what it needs, what is free, who holds the rest, when it starts."""
    gang = head.gang
    need = gang.need
    nodes = capacity.nodes(gang.cluster)
    shared = len({node.pool_name for node in nodes}) == 1 and len(nodes) > 1
    if shared:
        return _on_one_machine(gang, capacity) + _overtaking_note(head, capacity, passed, now)
    free = capacity.count(gang.cluster, need, excluded=gang.excluded)
    shortage = f"needs {describe(need)}; {free or 'none'} {'is' if free == 1 else 'are'} free"
    missing = need.nodes - free
    if len(nodes) < need.nodes and rules.coming:
        return f"{shortage}, {min(missing, need.nodes - len(nodes))} more must come up first"
    holders = [item for item in capacity.holders(head.pools) if item.likely_end(now) <= head.likely_at]
    if gone_for:
        return f"{shortage}, {gone_for} makes room"
    if not holders:
        return shortage + _overtaking_note(head, capacity, passed, now)
    which = f"the {_ordinal(need.nodes)} is" if missing == 1 and need.nodes > 1 else "the rest is"
    if need.nodes == 1:
        which = "the next is"
    return f"{shortage}, {which} held by {_names(holders)}{_until(head.likely_at)}" + _overtaking_note(
        head, capacity, passed, now
    )


def describe(need: Need) -> str:
    nodes = "1 node" if need.nodes == 1 else f"{need.nodes} nodes"
    if need.gpus or need.share < 1:
        return f"{nodes} with {_gpus(need)}"
    return f"{nodes} with {need.ranks} CPU slot{'s' if need.ranks > 1 else ''}" if need.gpus == 0 else nodes


def impossible(gang: Gang, nodes: Sequence[Node]) -> str | None:
    """Why a gang could never start on a cluster, however long it waits; `nodes` is the cluster at its largest."""
    need = gang.need
    if need.nodes > len(nodes):
        return f"needs {need.nodes} nodes; {gang.cluster} has at most {len(nodes)}"
    best = max((len(node.gpus) for node in nodes), default=0)
    if (need.gpus or 0) > best:
        return f"needs {_gpus(need)} on a node; the largest node of {gang.cluster} has {best}"
    pools = {node.pool_name: node for node in nodes}
    members = Counter(node.pool_name for node in nodes)
    if need.share < 1:
        room = sum(min(members[name], len(node.gpus) * (UNITS // units(need.share))) for name, node in pools.items())
    else:
        room = sum(min(members[name], len(node.gpus) // (need.gpus or 1)) for name, node in pools.items())
    if need.gpus and need.nodes > room:
        total = sum(len(node.gpus) for node in pools.values())
        return f"needs {need.nodes} × {_gpus(need)}; {gang.cluster} has {total} in all, shared by its simulated nodes"
    return None


def _gpus(need: Need) -> str:
    if need.share < 1:
        return f"{need.share:g} of a GPU"
    return f"{need.gpus} GPU{'' if need.gpus == 1 else 's'}"


def clock(at: float) -> str:
    """A point in time for people, in the server's time zone."""
    form = "%H:%M" if abs(at - time.time()) < 20 * 3600 else "%d %b %H:%M"
    return time.strftime(form, time.localtime(at))


def _on_one_machine(gang: Gang, capacity: Capacity) -> str:
    """For simulated nodes that share one machine: its CPUs and GPUs are what counts."""
    pool = capacity.pools_of(gang.cluster)[0]
    need = gang.need
    parts = min(need.nodes, len(pool.members[gang.cluster]))
    share = len(pool.gpus) // parts if need.gpus is None else need.gpus
    condition = pool.condition(gang.cluster)._replace(idle=True)
    lacks_part = need.share < 1 and fitting(condition, need) < parts
    lacks_gpus = need.share == 1 and share * parts > len(pool.free_gpus)
    # Front doors and replicas, for example, hold no CPUs: without them it would wait just as long.
    holders = [
        item
        for item in capacity.running.values()
        if any(
            capacity.pool_of(part.node) is pool and (part.gpus if lacks_part or lacks_gpus else part.ranks)
            for part in item.parts
        )
    ]
    rest = f", the rest is held by {_names(holders)}" if holders else ""
    if lacks_part:
        of = f"{need.share:g} of a GPU"
        shortage = f"needs {of}" if parts == 1 else f"needs {parts} × {of}"
        return f"{shortage}; {len(pool.free_gpus)} of {len(pool.gpus)} are free, and no other has enough left{rest}"
    if lacks_gpus:
        return f"needs {share * parts} GPUs; {len(pool.free_gpus)} of {len(pool.gpus)} are free{rest}"
    free = max(0, pool.cpus - pool.ranks)
    ranks = parts * need.ranks
    return f"needs {ranks} CPU slot{'s' if ranks > 1 else ''} for its ranks; {free} of {pool.cpus} are free{rest}"


def _overtaking_note(head: Head, capacity: Capacity, passed: Passed, now: float) -> str:
    """How often it was passed over, and when it starts at the latest even if that continues as long as it may."""
    if not passed.times:
        return ""
    often = {1: "once", 2: "twice"}.get(passed.times, f"{passed.times:,} times")
    if head.starts_by != UNKNOWN:
        return f"; passed over {often}; starts at the latest by {clock(head.starts_by)}"
    holders = capacity.holders(head.pools)
    if not holders:
        return f"; passed over {often}"
    latest = f"when {_names(holders)} {'has' if len(holders) == 1 else 'have'} ended"
    if head.is_closed(now):
        return f"; passed over {often}, and by nobody any more; starts at the latest {latest}"
    until = f"in the {LATE_S / 86_400:g} days after that" if head.due_at == UNKNOWN else f"by {clock(head.closes_at)}"
    most = f"; at most {head.passes_left:,} more pass it" if head.passes_left != UNKNOWN else ""
    return f"; passed over {often}; starts at the latest {latest}, and those who pass it {until}{most}"


def _names(holders: Sequence[Running]) -> str:
    titles = list(dict.fromkeys(item.title for item in holders))
    more = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
    return ", ".join(titles[:3]) + more


def _until(at: float) -> str:
    return "" if at == UNKNOWN else f" until about {clock(at)}"


def _known(at: float) -> float | None:
    return at if math.isfinite(at) else None


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
