"""How many nodes a cluster should have: a pure decision over its queue, its nodes and its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    min_nodes: int
    max_nodes: int
    idle_s: float
    """How long a node may be idle before it is removed."""


@dataclass(frozen=True)
class Member:
    """A node of the cluster that is here or on its way."""

    name: str
    busy: bool = False
    idle_s: float = 0.0
    """How long it has been idle; 0 while it is on its way."""
    usable: bool = True
    """It can take gangs now or soon: not cordoned, set aside or leaving."""
    leaving: bool = False


@dataclass(frozen=True)
class Wanted:
    """A waiting gang, in nodes."""

    nodes: int
    per_node: int = 1
    """How many parts of such gangs an empty node takes."""
    kept_off: int = 0
    """Idle nodes that it should not get again."""


@dataclass(frozen=True)
class Scaling:
    add: int = 0
    remove: tuple[str, ...] = ()


def autoscale(members: Sequence[Member], queue: Iterable[Wanted], limits: Limits) -> Scaling:
    """Nodes to add or to remove; never both, and never a busy one."""
    staying = [member for member in members if not member.leaving]
    over = len(staying) - limits.max_nodes
    free = [member for member in staying if member.usable and not member.busy]
    idle = sorted((member for member in staying if not member.busy), key=lambda item: (item.usable, -item.idle_s))
    if over > 0:
        return Scaling(remove=tuple(member.name for member in idle[:over]))
    missing = max(nodes_wanted(queue) - len(free), limits.min_nodes - len(staying))
    # A leaving node still counts until it is gone.
    room = limits.max_nodes - len(members)
    if missing > 0:
        return Scaling(add=max(0, min(missing, room)))
    spare = len(free) - nodes_wanted(queue)
    may_go = min(spare, len(staying) - limits.min_nodes)
    expired = [member for member in idle if member.usable and member.idle_s >= limits.idle_s]
    return Scaling(remove=tuple(member.name for member in expired[: max(0, may_go)]))


def nodes_wanted(queue: Iterable[Wanted]) -> int:
    """How many empty nodes the waiting gangs could use: small ones share nodes, the parts of a gang do not."""
    largest, together = 0, 0.0
    for gang in queue:
        largest = max(largest, gang.nodes + gang.kept_off)
        together += gang.nodes / gang.per_node
    return max(largest, math.ceil(together - 1e-9))
