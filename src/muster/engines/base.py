"""What an engine is: the place where nodes come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from muster.wire.node.agents import AgentConfig


@dataclass(frozen=True)
class Cluster:
    """A compute target as its engine sees it."""

    name: str
    engine: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeOffer:
    """A node that can host a part of a gang, now or after a start."""

    name: str
    host: str
    """Nodes with the same host share its CPUs and GPUs."""
    address: str
    cpus: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    own_share: bool = False
    """Its CPUs and GPUs are its own, though other nodes are on the same host."""
    state: str = ""
    """What its own manager says of it, where it has one."""
    reason: str = ""


@dataclass(frozen=True)
class Gang:
    """What an engine with a queue of its own is told of the attempt that wants nodes."""

    run: str
    attempt: int
    title: str
    folder: str
    """For what the engine itself writes; every node sees it."""
    ranks_per_node: int = 1
    gpus_per_node: int | None = None
    """None: all that a node has."""
    time_limit_s: float | None = None
    priority: int = 1
    """0 low, 1 medium, 2 high."""
    excluded: tuple[str, ...] = ()
    """Hosts that it should keep off."""


@dataclass(frozen=True)
class Allocation:
    """The nodes of one attempt; its id is chosen by the server and kept before the engine hears of it."""

    id: str
    cluster: Cluster
    agents: tuple[AgentConfig, ...]
    gang: Gang | None = None
    """Given to engines with a queue of their own."""
    followed: bool = False
    """On release: a further attempt comes."""


NodeLife = Literal["starting", "up", "gone"]


@dataclass(frozen=True)
class Ending:
    """How an allocation ended, as its engine's own manager tells."""

    code: str = ""
    """A verdict: cancelled, preempted, node_lost, timeout, time_slice, host_oom, bad_input; empty: nothing special."""
    message: str = ""


@dataclass(frozen=True)
class AllocationState:
    """What has become of an allocation."""

    nodes: Mapping[str, NodeLife]
    reason: str = ""
    """Why nodes are still starting, or are gone, in words."""
    ending: Ending | None = None
    """Set once it is over, by engines that can tell why."""


class Engine(ABC):
    """Starts node agents by command line and says what has become of them."""

    name: ClassVar[str]
    keeps_nodes: ClassVar[bool] = False
    """Nodes come and go as the server decides, and stay between jobs; otherwise they come with a gang."""
    queues: ClassVar[bool] = False
    """It has a queue of its own: gangs are handed on as they come, and their nodes are known once they start."""
    remote: ClassVar[bool] = False
    """Its nodes are other machines, which reach the server by TLS or through a shared folder."""

    @abstractmethod
    def check(self, cluster: Cluster) -> list[str]:
        """Refuse settings that cannot work (JobError); return notices."""

    @abstractmethod
    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        """The nodes of a cluster, in the order in which they should be filled."""

    @abstractmethod
    def allocate(self, allocation: Allocation) -> None:
        """Start what is missing of the allocation's agents; may be called again with the same one."""

    @abstractmethod
    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        """The state of each allocation, by id; one call to the outside for all of them."""

    @abstractmethod
    def release(self, allocation: Allocation) -> None:
        """Give the nodes back; may be called again."""

    @abstractmethod
    def close(self, leave_agents: bool) -> None:
        """Let go; with `leave_agents` the agents work on without the server."""


@runtime_checkable
class Scripted(Protocol):
    """An engine that hands a script to somebody else; it is kept with the run and can be looked at first."""

    def script(self, allocation: Allocation) -> str:
        """What would be handed on."""
