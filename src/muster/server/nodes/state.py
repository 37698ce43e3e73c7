"""What the server holds of engines, nodes and agents."""

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
    """A job that is over, and of which the accounting has not said what it used."""

    cluster: Cluster
    job: QueueJob
    since: float
    """By the monotonic clock."""


@dataclass
class NodesState:
    """Engines, and what is remembered of their nodes."""

    engines: Engines
    addresses: tuple[str, ...]
    """Where agents on this machine reach the server."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    asking: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Held while a cluster's engine is asked for agents: one request after another."""
    offered: dict[str, tuple[Sequence[NodeOffer], list[Node]]] = field(default_factory=dict)
    """The nodes of clusters as their engines offered them last, and as the scheduler sees them."""
    allocations: dict[tuple[str, int], AllocationState] = field(default_factory=dict)
    """What engines with a queue of their own said last of each open attempt."""
    announced: set[tuple[str, int]] = field(default_factory=set)
    """The attempts whose followers know why they wait."""
    jobs: dict[tuple[str, int], QueueJob] = field(default_factory=dict)
    """What the queues of clusters say of open attempts."""
    ended_jobs: dict[tuple[str, int], EndedJob] = field(default_factory=dict)
    """Those of which it is not known yet what they used."""
    unreached: dict[str, ServerContact] = field(default_factory=dict)
    """What agents met that live and have not reached this server, by node."""


@dataclass
class RemoteAccess:
    """How agents on other machines reach the server."""

    ports: dict[int | None, int] = field(default_factory=dict)
    """Where it listens for clusters that want a certain port; None: for all others."""
    host: str | None = None
    """The host that a server for a team was started on."""
    certificate: str | None = None
    """What the server presents to those who come over TLS."""
    open: Callable[[], Awaitable[list[str]]] | None = None
    """Listens for other machines as their clusters want it; returns notices."""

    def urls(self, reach: Connection) -> tuple[str, ...]:
        """Where the nodes of a cluster reach the server over TLS, as the cluster's settings are now."""
        port = self.ports.get(reach.server_port) or self.ports.get(None)
        if port is None:
            return ()
        return (f"https://{in_url(self.resolved(reach).server_address or '')}:{port}",)

    def resolved(self, reach: Connection) -> Connection:
        """With the server's address, which is looked for where the cluster does not name it."""
        if reach.server_address:
            return reach
        return replace(reach, server_address=self.host or address_towards(reach.near))
