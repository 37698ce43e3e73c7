"""Compute targets, their nodes, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT, Json
from muster.wire.message import check_name, wire
from muster.wire.states import ClusterState

DeleteMode = Literal["refuse", "drain", "now"]
CostBy = Literal["run", "user", "cluster"]


@wire
class NewCluster:
    """The body of `POST clusters`."""

    name: str
    engine: str = "local"
    options: Mapping[str, Json] = field(default_factory=dict)
    """Options of all clusters, and those of the engine, which the engine validates."""

    def __post_init__(self) -> None:
        check_name(self.name)


@wire
class ClusterChanges:
    """The body of `PATCH clusters/NAME`; a null option goes back to its default."""

    options: Mapping[str, Json] = field(default_factory=dict)
    state: Literal["ready", "stopped"] | None = None
    now: bool = False
    """End runs on nodes that are removed, instead of waiting for them; they are queued again."""


@wire
class NodeChanges:
    """The body of `PATCH clusters/NAME/nodes/NODE`."""

    cordoned: bool
    reason: str = "by hand"


@wire
class MachineSize:
    """A machine size of the catalogue."""

    name: str
    cpus: int
    memory_gb: float
    gpu: str | None
    gpus: int
    gpu_memory_gb: float | None
    infiniband: bool
    price_per_hour: float | None


@wire
class NodeShape:
    """What each node of a cluster has."""

    cpus: int
    gpus: int
    memory_bytes: int


@wire
class NodeView:
    """One node of a cluster."""

    name: str
    state: str
    """Muster's own state, or that of the manager that lends the node."""
    reason: str
    since: float | None
    cordoned: str | None
    """Why nothing new starts there; None: it is not cordoned."""
    strikes: int
    """Failures in a row that look like the node's."""
    runs: tuple[str, ...]
    host: str | None
    pid: int | None
    address: str | None
    cpus: int | None
    memory_bytes: int | None
    gpus: tuple[str, ...] | None


@wire
class ClusterView:
    """A compute target with its nodes."""

    name: str
    engine: str
    state: ClusterState
    options: Mapping[str, Json]
    created_at: float
    min_nodes: int
    max_nodes: int
    lent: bool
    """Its nodes belong to another manager and come with each attempt."""
    idle_seconds_before_scaledown: float
    vm_priority: str
    price_per_hour: float | None
    size: MachineSize | None
    node: NodeShape | None
    queued: int
    """How many runs wait for it, counted up to 1,000."""
    nodes: tuple[NodeView, ...]
    reason: str = field(default="", metadata=OMIT)
    """Why it is unreachable."""


@wire
class ChangedCluster(ClusterView):
    """The answer to a creation or a change."""

    notices: tuple[str, ...] = ()


FindingLevel = Literal["ok", "warn", "fail"]


@wire
class Finding:
    """One line of a check."""

    topic: str
    level: FindingLevel
    said: str
    advice: str = ""


@wire
class ClusterCheck:
    """What the server has checked on the way to a cluster."""

    findings: tuple[Finding, ...]


@wire
class NodeStateView:
    """A state that a node was in."""

    at: float
    state: str
    reason: str


@wire
class SetupLog:
    """What a node's set-up command printed."""

    log: str


@wire
class CostLine:
    """What a run, a user, a cluster or all of them used."""

    key: str
    title: str
    runs: int
    node_hours: float
    gpu_hours: float
    priced_node_hours: float
    """Node hours of which the price is known."""
    cost: float | None


@wire
class CostReport:
    """Node hours and their price."""

    by: CostBy
    currency: str
    lines: tuple[CostLine, ...]
    total: CostLine | None


@wire
class UsePoint:
    """Averages over one interval."""

    nodes: float | None
    """Nodes that were up; None: not recorded, as for nodes that come with each run."""
    busy: float
    """Nodes with at least one run."""
    gpus: float
    """In use."""
    waiting: float
    """Runs that had not started yet."""


@wire
class ClusterUse:
    """How much of a cluster was in use over time."""

    cluster: str
    begin: float
    step_s: float
    points: tuple[UsePoint, ...]
