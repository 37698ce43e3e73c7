"""Which environments are built before the runs that need them start: building takes no node from anybody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Node, Rules

Place = tuple[str, str]
"""The content of an environment, and a host."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A queued gang that runs in an environment."""

    gang: Gang
    content: str
    """Equal for environments with equal content."""
    label: str
    """What people call it."""


@dataclass(frozen=True)
class BuildPlan:
    """What is built, and who waits for it."""

    asked: Mapping[Place, Node] = field(default_factory=dict)
    """The node of the host that builds it."""
    waiting: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)
    """The runs that need it there."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Runs that do not start yet, and why."""
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Runs that could start where their environment is, and the nodes where it is not."""


def plan_builds(
    wishes: Iterable[Wish],
    capacity: Capacity,
    rules: Mapping[str, Rules],
    ready: Collection[Place],
    can_build: Callable[[Node], bool],
) -> BuildPlan:
    """Decide for every gang that could otherwise start: where its environment is, or where to build it first."""
    plan = _Planning(capacity, ready, can_build)
    for wish in wishes:
        rule = rules.get(wish.gang.cluster, Rules())
        # Nodes that come with a gang do not exist before it starts.
        if not (rule.hands_on or rule.closed or wish.gang.run_id in rule.held):
            plan.add(wish, more_come=rule.coming > 0)
    return BuildPlan(
        plan.asked,
        {place: tuple(runs) for place, runs in plan.waiting.items()},
        plan.held,
        plan.kept_off,
    )


class _Planning:
    """The plan as it grows; gangs of the same shape and environment share one answer."""

    def __init__(self, capacity: Capacity, ready: Collection[Place], can_build: Callable[[Node], bool]) -> None:
        self._capacity = capacity
        self._ready = ready
        self._can_build = can_build
        self._cached: dict[object, tuple[frozenset[str], list[Node], bool]] = {}
        self.asked: dict[Place, Node] = {}
        self.waiting: dict[Place, list[str]] = {}
        self.held: dict[str, str] = {}
        self.kept_off: dict[str, frozenset[str]] = {}

    def add(self, wish: Wish, more_come: bool) -> None:
        gang = wish.gang
        shape = (gang.cluster, wish.content, gang.need, gang.excluded)
        if shape not in self._cached:
            self._cached[shape] = self._nodes_to_build_on(wish)
        without_it, chosen, fits = self._cached[shape]
        if without_it and not chosen and fits:
            self.kept_off[gang.run_id] = without_it
        for node in chosen:
            place = (wish.content, node.host)
            self.asked.setdefault(place, node)
            self.waiting.setdefault(place, []).append(gang.run_id)
        # A gang that needs more nodes to come up still requests them while its environment is built on the others.
        if chosen and (fits or not more_come):
            where = chosen[0].name + (f" and {len(chosen) - 1} more" if len(chosen) > 1 else "")
            self.held[gang.run_id] = f"waits for its environment {wish.label}, which is built on {where}"

    def _nodes_to_build_on(self, wish: Wish) -> tuple[frozenset[str], list[Node], bool]:
        """The nodes without the environment, those that are to build it now, and whether the gang fits."""
        gang, capacity = wish.gang, self._capacity
        cluster, need = gang.cluster, gang.need
        nodes = [node for node in capacity.nodes(cluster) if node.name not in gang.excluded]
        lacking = [node for node in nodes if (wish.content, node.host) not in self._ready and self._can_build(node)]
        without_it = frozenset(node.name for node in lacking)
        fits = capacity.count(cluster, need, True, gang.excluded) >= need.nodes
        without = gang.excluded | without_it
        enough = capacity.count(cluster, need, True, without) if fits else capacity.ever(cluster, need, without)
        if not lacking or enough >= need.nodes:
            return without_it, [], fits
        if fits:
            places = capacity.pick(cluster, need, True, gang.excluded)
            chosen = [place.node for place in places if place.node.name in without_it]
        else:
            chosen = lacking
        on_hosts: dict[str, Node] = {}
        for node in chosen:
            on_hosts.setdefault(node.host, node)
        return without_it, list(on_hosts.values())[: need.nodes], fits
