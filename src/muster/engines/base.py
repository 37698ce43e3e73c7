"""What an engine is: where nodes come from. It owns nodes (NodeEngine) or has a queue of its own (QueueEngine)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from muster.defaults import LINGER_S
from muster.paths import NodePaths
from muster.wire.codec import Json
from muster.wire.node.agents import AgentConfig, ServerContact
from muster.wire.queue_jobs import JobUsage, QueueJob


@dataclass(frozen=True)
class Cluster:
    """A compute target as its engine sees it."""

    name: str
    engine: str
    options: Mapping[str, Json] = field(default_factory=dict)


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
    """Its CPUs and GPUs are its own, although other nodes are on the same host."""
    state: str = ""
    """The description of it by its own manager, where it has one."""
    reason: str = ""

    @classmethod
    def of_machine(
        cls, name: str, address: str, cpus: int, memory_bytes: int, num_gpus: int, state: str, reason: str
    ) -> NodeOffer:
        """A machine that is a node by itself; its GPUs are numbered."""
        gpus = tuple(str(index) for index in range(num_gpus))
        return cls(name, name, address, cpus, memory_bytes, gpus, own_share=True, state=state, reason=reason)


@dataclass(frozen=True)
class Connection:
    """How agents on other machines reach the server."""

    mode: Literal["auto", "tls", "files"] = "auto"
    """Over TLS, through the workspace's folder, or whichever works."""
    server_address: str | None = None
    """The server's name or address as the nodes see it."""
    server_port: int | None = None
    linger_s: float = LINGER_S
    """How long idle nodes that came with a gang are kept while the server is away."""
    near: tuple[str, ...] = ()
    """Hosts of the cluster, its head first: the route to them is also the route back."""


class Engine(ABC):
    """The methods that both kinds of engines share; an engine is a NodeEngine or a QueueEngine."""

    name: ClassVar[str]
    on_this_machine: ClassVar[bool] = False
    """Its nodes see the folders of the server's machine."""
    takes_orders_from_ranks: ClassVar[bool] = False
    """Anyone who reaches its network may run anything there as its account, so a sandbox isolates nobody."""

    @abstractmethod
    def check(self, cluster: Cluster) -> list[str]:
        """Refuse settings that cannot work (JobError); return notices."""

    @abstractmethod
    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        """The nodes of a cluster, in the order in which they should be filled; the same list while nothing changes."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; agents continue without the server."""

    def trouble(self, cluster: Cluster, patience_s: float = 0.0) -> str:
        """Why the cluster's own manager does not answer; empty: it does. With patience it is asked now."""
        return ""

    def about(self, cluster: Cluster) -> str:
        """The name and version of the cluster's own manager; empty: it has none."""
        return ""

    def connection(self, cluster: Cluster) -> Connection | None:
        """How nodes on other machines reach the server; None: they use its socket."""
        return None


# Engines that own nodes

NodeLife = Literal["starting", "up", "gone"]


class NodeState(NamedTuple):
    """The state of a node."""

    life: NodeLife
    reason: str = ""
    """Why it is still starting, or is gone."""


class NodeEngine(Engine):
    """Its nodes have names and stay between jobs; the server starts their agents and places gangs on them."""

    @abstractmethod
    def start(self, cluster: Cluster, agents: Sequence[AgentConfig]) -> None:
        """Start the agents that are missing; their configuration files exist already. May be called again."""

    @abstractmethod
    def poll(self, cluster: Cluster, nodes: Mapping[str, NodePaths]) -> Mapping[str, NodeState]:
        """The state of each node, by name."""

    @abstractmethod
    def release(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        """Give back nodes whose agents have left; may be called again."""

    def scales(self, cluster: Cluster) -> bool:
        """Whether the server adds nodes as runs wait for them; otherwise each is started for its first gang."""
        return True


# Engines with a queue of their own


@dataclass(frozen=True)
class Gang:
    """The attempt that needs nodes."""

    run: str
    attempt: int
    title: str
    folder: str
    """For the engine's own files; every node sees it."""
    ranks_per_node: int = 1
    gpus_per_node: int | None = None
    """None: everything a node has."""
    gpu_share: float = 1.0
    """Below 1: this fraction of one GPU on each node."""
    time_limit_s: float | None = None
    priority: int = 1
    """0 low, 1 medium, 2 high."""
    excluded: tuple[str, ...] = ()
    """Hosts to avoid."""


@dataclass(frozen=True)
class Allocation:
    """The nodes of one attempt; its id is chosen by the server and recorded before the engine gets it."""

    id: str
    cluster: Cluster
    nodes: Mapping[str, NodePaths]
    """Names and folders, by node rank."""


@dataclass(frozen=True)
class GangRequest(Allocation):
    """A requested allocation."""

    gang: Gang
    agents: tuple[AgentConfig, ...] = ()
    """Empty where the request is only previewed."""


@dataclass(frozen=True)
class Ending:
    """How an allocation ended, as its engine's own manager reports."""

    code: str = ""
    """A verdict: cancelled, preempted, node_lost, timeout, time_slice, host_oom, bad_input; empty: nothing special."""
    message: str = ""
    lost: tuple[str, ...] = ()
    """Machines that the manager has lost."""


@dataclass(frozen=True)
class AllocationState:
    """The state of an allocation."""

    nodes: Mapping[str, NodeLife]
    reason: str = ""
    """Why nodes are still starting, or are gone."""
    ending: Ending | None = None
    """Set once it is over, by engines that can tell why."""
    unreached: Mapping[str, ServerContact] = field(default_factory=dict)
    """Errors of agents that are alive and cannot reach the server, by node."""
    starts_at: float | None = None
    """When its own queue expects to start it, if known."""

    @classmethod
    def of_all(
        cls, allocation: Allocation, life: NodeLife, reason: str = "", ending: Ending | None = None
    ) -> AllocationState:
        """The same for every node."""
        return cls(dict.fromkeys(allocation.nodes, life), reason, ending)


class QueueEngine(Engine):
    """Gangs are submitted to its queue as they come; nodes come with a gang, and their hosts are known at its start."""

    @abstractmethod
    def submit(self, request: GangRequest) -> None:
        """Put a gang into the queue, unless it is there; may be called again with the same one."""

    @abstractmethod
    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        """The state of each allocation, by id; one call to the queue's manager for all of them."""

    @abstractmethod
    def release(self, allocation: Allocation, followed: bool) -> None:
        """Give the nodes back; may be called again. `followed`: another attempt of the run comes."""

    def connection(self, cluster: Cluster) -> Connection:
        return Connection()

    def job(self, allocation: Allocation) -> QueueJob | None:
        """The queue's own id of an allocation, for people who query it directly; None: unknown or none."""
        return None

    def usage(self, cluster: Cluster, jobs: Sequence[str]) -> Mapping[str, JobUsage] | str:
        """Resource usage of ended jobs, where recorded; or why it will never be known, empty: not asked."""
        return ""


@runtime_checkable
class Scripted(Protocol):
    """A queue engine that submits a script, which is kept with the run and can be previewed."""

    def script(self, request: GangRequest) -> str:
        """The script that would be submitted."""


@runtime_checkable
class TakesMany(Protocol):
    """A queue engine that can put many gangs into its queue at once."""

    def submit_many(self, requests: Sequence[GangRequest]) -> Mapping[str, str]:
        """As `submit`, for gangs of one cluster; returns the scripts of those that share one, by allocation."""
