"""What the server holds of engines, nodes and agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from muster.control.scheduling.model import Node
from muster.engines.base import AllocationState, NodeOffer
from muster.engines.registry import Engines


@dataclass
class NodesState:
    """Engines, and what is remembered of their nodes."""

    engines: Engines
    addresses: tuple[str, ...]
    """Where agents on this machine reach the server."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    offered: dict[str, tuple[Sequence[NodeOffer], list[Node]]] = field(default_factory=dict)
    """The nodes of clusters as their engines offered them last, and as the scheduler sees them."""
    allocations: dict[tuple[str, int], AllocationState] = field(default_factory=dict)
    """What engines with a queue of their own said last of each open attempt."""
    announced: set[tuple[str, int]] = field(default_factory=set)
    """The attempts whose followers know why they wait."""


@dataclass
class RemoteAccess:
    """How agents on other machines reach the server."""

    addresses: tuple[str, ...] = ()
    certificate: str | None = None
    """What the server presents to those who come over TLS."""
    open: Callable[[], Awaitable[None]] | None = None
    """Listens for other machines once a cluster has some."""
