"""What a plan is: for every node and rank the command, environment and log name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire


@wire
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
    """Variables that keep its ranks on the gang's network."""


@wire
class PortsWanted:
    """Ports that a node must hold before the plan can be made."""

    count: int = 0
    preferred: int = 0


@wire
class Needs:
    """What a node is checked for before ranks start there."""

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


@wire
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


@wire
class MpiHost:
    """A node as the others of an MPI job reach it."""

    name: str
    address: str
    port: int
    """Where its keeper hears what mpirun wants there; 0 on the first node."""
    ranks: int
    shared: bool
    """Other nodes of the job are on the same machine."""


@wire
class NodePlan:
    """What one node of the gang starts."""

    node_rank: int
    name: str
    address: str
    gpus: tuple[str, ...]
    ranks: tuple[RankPlan, ...]
    mpi: tuple[MpiHost, ...] = ()
    """Every node of an MPI job, in order."""


@wire
class Plan:
    """What every node of a gang starts."""

    nodes: tuple[NodePlan, ...]
    notices: tuple[str, ...] = ()

    @property
    def ranks(self) -> tuple[RankPlan, ...]:
        return tuple(rank for node in self.nodes for rank in node.ranks)


@wire
class PlanRequest:
    """The body of `POST plan`."""

    spec: Mapping[str, Json]
    """The job document."""
    python: str | None = None


@wire
class PlanView(Plan):
    """The answer to `POST plan`."""

    script: str | None = field(default=None, metadata=OMIT)
    """What an engine with a queue of its own would submit."""
    data: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Where the bytes of inputs will come from, a line each."""
