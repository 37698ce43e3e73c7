"""Environments that nodes build for queued runs: requested or ready. In memory: they can be requested again."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.control.scheduling.builds import BuildPlan, Place
from muster.control.scheduling.model import Node
from muster.server.environments.wheels import Claims
from muster.wire.node.builds import BuildOrder, PackedEnvironment
from muster.wire.node.recipes import Recipe

_MOST = 1_000


@dataclass
class PackedEnvironments:
    """By key; what is lost when the server restarts, nodes build or pack again."""

    by_key: OrderedDict[str, PackedEnvironment] = field(default_factory=OrderedDict)

    def keep(self, key: str, packed: PackedEnvironment) -> None:
        self.by_key[key] = packed
        self.by_key.move_to_end(key)
        while len(self.by_key) > _MOST:
            self.by_key.popitem(last=False)


@dataclass(frozen=True)
class Sharing:
    """Whether nodes of a cluster take environments from each other."""

    shared: bool = False
    same_machine: bool = False


@dataclass(frozen=True)
class Asked:
    """A build that was requested from a node."""

    cluster: str
    node: Node
    order: BuildOrder


class Builds:
    """Only the writer thread changes it; others read objects that are replaced, never modified."""

    def __init__(self) -> None:
        self.ready: frozenset[Place] = frozenset()
        """Environments known to be on a host, unless somebody has removed them since."""
        self._asked: Mapping[Place, Asked] = {}
        self.claims = Claims()
        """Which node compiles which wheel, and which builds which environment for all."""
        self.packed = PackedEnvironments()

    def take(
        self,
        plan: BuildPlan,
        clusters: Mapping[str, str],
        recipes: Mapping[str, tuple[Recipe, str | None]],
        sharing: Mapping[str, Sharing],
    ) -> set[str]:
        """Replace the requested builds by the planned ones; returns the nodes whose orders change."""
        asked: dict[Place, Asked] = {}
        for place, node in plan.asked.items():
            runs = plan.waiting[place]
            before = self._asked.get(place)
            # A node that has begun continues, if it still takes gangs.
            if before is not None and clusters.get(before.node.name) == before.cluster:
                asked[place] = replace(before, order=replace(before.order, runs=runs))
                continue
            recipe, python = recipes[place[0]]
            how = sharing.get(clusters[node.name], Sharing())
            order = BuildOrder(
                secrets.token_hex(8), place[0], recipe, runs, python, how.shared, how.shared and how.same_machine
            )
            asked[place] = Asked(clusters[node.name], node, order)
        before_now, self._asked = self._asked, asked
        changed = {place for place in before_now.keys() | asked.keys() if before_now.get(place) != asked.get(place)}
        return {item.node.name for known in (before_now, asked) for place in changed if (item := known.get(place))}

    def orders(self, node: str) -> tuple[BuildOrder, ...]:
        """What a node is to build now; callable from any thread, like the next."""
        return tuple(item.order for item in self._asked.values() if item.node.name == node)

    def nodes(self) -> set[tuple[str, str]]:
        """The nodes that are building, with their clusters."""
        return {(item.cluster, item.node.name) for item in self._asked.values()}

    def settle(self, node: str, order: str, is_there: bool) -> Asked | None:
        """A node has finished a build, or failed; None where the build is no longer wanted."""
        found = [place for place, item in self._asked.items() if (item.node.name, item.order.id) == (node, order)]
        if not found:
            return None
        (place,) = found
        asked = self._asked[place]
        self._asked = {other: item for other, item in self._asked.items() if other != place}
        if is_there:
            self.ready = self.ready | {place}
        return asked
