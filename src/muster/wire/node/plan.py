"""Plans: the command, environment and log name of every node and rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire


@wire
class Slot:
    """One node for a plan: its address and the part of it that the gang holds."""

    name: str
    address: str = "127.0.0.1"
    cpus: int = 1
    """CPUs of the machine; slots on the same host share them."""
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
    """What is checked on a node before ranks start there."""

    modules: tuple[str, ...] = ()
    """Modules whose versions in the ranks' Python must be the same on every node."""
    required: tuple[str, ...] = ()
    """Modules without which the command is certain to fail."""
    programs: tuple[str, ...] = ()
    """Launchers that the command begins with."""
    ranks: int = 1
    gpus: tuple[str, ...] = ()
    shm_bytes: int | None = None
    port: int | None = None
    """The MASTER_PORT that the user chose."""
    devices: bool = False
    """The plan needs the node's network devices."""
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
    """The path below the run's files, such as `user_logs/std_log_process_0.txt`."""
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
    """The port on which its keeper accepts mpirun's requests; 0 on the first node."""
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
    """Where the bytes of each input will come from, one line each."""
