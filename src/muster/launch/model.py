"""What a plan is: for every node and rank the command, environment and log name.

Plain data without dependencies, because the agent reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One node as a plan sees it: where it is and what of it the gang holds."""

    name: str
    address: str = "127.0.0.1"
    cpus: int = 1
    """Of the machine; slots that share a host share them."""
    gpus: tuple[str, ...] = ()
    """Ids as CUDA_VISIBLE_DEVICES takes them."""
    ports: tuple[int, ...] = ()
    """Ports that the node's agent holds for this attempt, in the order asked for."""
    shared_host: bool = False
    """Other slots of the gang are on the same machine."""


@dataclass(frozen=True)
class PortsWanted:
    """Ports that a node must hold before the plan can be made."""

    count: int = 0
    preferred: int = 0


@dataclass(frozen=True)
class RankPlan:
    """One process that Muster starts."""

    rank: int
    node_rank: int
    local_rank: int
    argv: tuple[str, ...]
    """A command list still holds `$NAME` when `expand` is set."""
    env: Mapping[str, str]
    log: str
    """Below the run's files, such as `user_logs/std_log_process_0.txt`."""
    role: str = "worker"
    expand: bool = False
    essential: bool = True
    """The attempt ends when its essential ranks have ended; the others are then stopped."""
    wrapped: bool = False
    """Started by the launcher rank (`mpirun`), not by the node's keeper."""


@dataclass(frozen=True)
class NodePlan:
    node_rank: int
    name: str
    address: str
    gpus: tuple[str, ...]
    ranks: tuple[RankPlan, ...]


@dataclass(frozen=True)
class Plan:
    nodes: tuple[NodePlan, ...]
    notices: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> tuple[RankPlan, ...]:
        return tuple(rank for node in self.nodes for rank in node.ranks)


def to_json(value: Any) -> dict[str, Any]:
    return asdict(value)


def node_plan_from_json(data: Mapping[str, Any]) -> NodePlan:
    ranks = tuple(RankPlan(**{**rank, "argv": tuple(rank["argv"])}) for rank in data["ranks"])
    return NodePlan(data["node_rank"], data["name"], data["address"], tuple(data["gpus"]), ranks)


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    return Plan(tuple(node_plan_from_json(node) for node in data["nodes"]), tuple(data.get("notices", ())))
