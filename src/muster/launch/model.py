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
    network: Mapping[str, str] = field(default_factory=dict)
    """Settings that keep its ranks on the gang's network."""


@dataclass(frozen=True)
class PortsWanted:
    """Ports that a node must hold before the plan can be made."""

    count: int = 0
    preferred: int = 0


@dataclass(frozen=True)
class Needs:
    """What a node is looked at for before ranks start there."""

    modules: tuple[str, ...] = ()
    """Looked for in the ranks' Python; their versions must be the same on every node."""
    required: tuple[str, ...] = ()
    """Those without which the command is certain to fail."""
    programs: tuple[str, ...] = ()
    """Launchers that the command begins with."""
    ranks: int = 1
    gpus: tuple[str, ...] = ()
    shm_bytes: int | None = None
    port: int | None = None
    """The MASTER_PORT that the user chose."""
    devices: bool = False
    """The plan wants to know the node's network devices."""
    shell: bool = False
    """The command runs under bash."""


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
class MpiHost:
    """A node as the others of an MPI job reach it."""

    name: str
    address: str
    port: int
    """Where its keeper hears what mpirun wants there; 0 on the first node."""
    ranks: int
    shared: bool
    """Other nodes of the job are on the same machine."""


@dataclass(frozen=True)
class NodePlan:
    node_rank: int
    name: str
    address: str
    gpus: tuple[str, ...]
    ranks: tuple[RankPlan, ...]
    mpi: tuple[MpiHost, ...] = ()
    """Every node of an MPI job, in order."""


@dataclass(frozen=True)
class Plan:
    nodes: tuple[NodePlan, ...]
    notices: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> tuple[RankPlan, ...]:
        return tuple(rank for node in self.nodes for rank in node.ranks)


def to_json(value: Any) -> dict[str, Any]:
    return asdict(value)


def needs_from_json(data: Mapping[str, Any] | None) -> Needs:
    given = (data or {}).items()
    fields: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in given}
    return Needs(**fields)


def node_plan_from_json(data: Mapping[str, Any]) -> NodePlan:
    ranks = tuple(RankPlan(**{**rank, "argv": tuple(rank["argv"])}) for rank in data["ranks"])
    hosts = tuple(MpiHost(**host) for host in data.get("mpi", ()))
    return NodePlan(data["node_rank"], data["name"], data["address"], tuple(data["gpus"]), ranks, hosts)


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    return Plan(tuple(node_plan_from_json(node) for node in data["nodes"]), tuple(data.get("notices", ())))
