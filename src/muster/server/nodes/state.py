"""The server's in-memory state of engines, nodes and agents."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from muster.control.scheduling.model import Node
from muster.engines.base import AllocationState, Cluster, Connection, NodeOffer
from muster.engines.registry import Engines
from muster.host.network import address_towards, in_url
from muster.wire.node.agents import ServerContact
from muster.wire.queue_jobs import QueueJob


@dataclass(frozen=True)
class EndedJob:
    """A job that is over and whose usage the accounting has not reported yet."""

    cluster: Cluster
    job: QueueJob
    since: float
    """On the monotonic clock."""


@dataclass
class NodesState:
    """Engines, and what is cached of their nodes."""

    engines: Engines
    addresses: tuple[str, ...]
    """Where agents on this machine reach the server."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    asking: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One lock per cluster: its engine gets one request for agents after another."""
    offered: dict[str, tuple[Sequence[NodeOffer], list[Node]]] = field(default_factory=dict)
    """The nodes of clusters as last offered by their engines, and as the scheduler sees them."""
    allocations: dict[tuple[str, int], AllocationState] = field(default_factory=dict)
    """The latest state of each open attempt on engines with a queue of their own."""
    announced: set[tuple[str, int]] = field(default_factory=set)
    """The attempts whose followers were told why they wait."""
    jobs: dict[tuple[str, int], QueueJob] = field(default_factory=dict)
    """The jobs of open attempts, as their clusters' queues report them."""
    ended_jobs: dict[tuple[str, int], EndedJob] = field(default_factory=dict)
    """Ended jobs whose usage is not known yet."""
    unreached: dict[str, ServerContact] = field(default_factory=dict)
    """The trouble of live agents that have not reached this server, by node."""


@dataclass
class RemoteAccess:
    """How agents on other machines reach the server."""

    ports: dict[int | None, int] = field(default_factory=dict)
    """Where it listens for clusters that want a certain port; None: for all others."""
    host: str | None = None
    """The host that a server for a team was started on."""
    certificate: str | None = None
    """The certificate that the server presents over TLS."""
    open: Callable[[], Awaitable[list[str]]] | None = None
    """Listens for other machines as their clusters want it; returns notices."""

    def urls(self, reach: Connection) -> tuple[str, ...]:
        """Where the nodes of a cluster reach the server over TLS, as the cluster's settings are now."""
        port = self.ports.get(reach.server_port) or self.ports.get(None)
        if port is None:
            return ()
        return (f"https://{in_url(self.resolved(reach).server_address or '')}:{port}",)

    def resolved(self, reach: Connection) -> Connection:
        """The connection with the server's address, which is detected where the cluster does not name it."""
        if reach.server_address:
            return reach
        return replace(reach, server_address=self.host or address_towards(reach.near))
