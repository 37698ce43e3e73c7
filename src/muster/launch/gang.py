"""A gang on its nodes: the tasks, the slots they run in, and which of them share a machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from muster.job.expressions import resolve_environment
from muster.job.spec import JobSpec
from muster.launch.layout import Task, layout
from muster.wire.node.plan import Slot


@dataclass(frozen=True)
class Gang:
    """All that the environment of a rank is made from."""

    spec: JobSpec
    tasks: tuple[Task, ...]
    slots: tuple[Slot, ...]
    user_env: Mapping[str, str]

    @classmethod
    def of(cls, spec: JobSpec, slots: Iterable[Slot]) -> Gang:
        return cls(spec, layout(spec), tuple(slots), resolve_environment(spec))

    @cached_property
    def tasks_of_nodes(self) -> tuple[tuple[Task, ...], ...]:
        nodes: list[list[Task]] = [[] for _ in self.slots]
        for task in self.tasks:
            nodes[task.node_rank].append(task)
        return tuple(tuple(node) for node in nodes)

    @cached_property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Node ranks, grouped by the machine that they share."""
        groups: dict[str, list[int]] = {}
        for node_rank, slot in enumerate(self.slots):
            groups.setdefault(_machine(slot), []).append(node_rank)
        return tuple(tuple(group) for group in groups.values())

    @property
    def on_one_machine(self) -> bool:
        """No rank has to leave the machine to reach another."""
        return len(self.machines) == 1

    def tasks_on_machine(self, node_rank: int) -> int:
        """Tasks that share the machine's cores with those of a node, its own included."""
        together = next(group for group in self.machines if node_rank in group)
        return sum(len(self.tasks_of_nodes[other]) for other in together)


def _machine(slot: Slot) -> str:
    if _is_loopback(slot.address):
        return "loopback"
    return slot.address if slot.shared_host else f"node {slot.name}"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
