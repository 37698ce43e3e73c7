"""What an engine is: the place where nodes come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from muster.protocol import AgentConfig


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


@dataclass(frozen=True)
class Allocation:
    """The nodes of one attempt; its id is chosen by the server and kept before the engine hears of it."""

    id: str
    cluster: Cluster
    agents: tuple[AgentConfig, ...]


NodeLife = Literal["starting", "up", "gone"]


@dataclass(frozen=True)
class AllocationState:
    """What has become of an allocation."""

    nodes: Mapping[str, NodeLife]
    reason: str = ""
    """Why nodes are still starting, or are gone, in words."""


class Engine(ABC):
    """Starts node agents by command line and says what has become of them."""

    name: ClassVar[str]
    keeps_nodes: ClassVar[bool] = False
    """Nodes come and go as the server decides, and stay between jobs; otherwise they come with a gang."""

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
