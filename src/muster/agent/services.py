"""What the stages of an attempt use of their node: the server, the folders, and ways to report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.agent.link import Link
from muster.agent.peers import Peers
from muster.agent.ship.shipper import Shipper
from muster.paths import AttemptPaths, NodePaths
from muster.wire.node.agents import AttemptKey, Event, EventData, Noted, Order
from muster.wire.states import Level


@dataclass(frozen=True)
class NodeServices:
    """Shared by all attempts of a node; callable from any thread."""

    paths: NodePaths
    link: Link
    shipper: Shipper
    runtime: Path
    """The folder for PYTHONPATH of ranks."""
    mark: str
    """Set in the environment of every process of this node: by it a later agent finds leftovers."""
    environ: Mapping[str, str]
    peers: Peers
    """Shares staged data with other nodes."""
    under_way: dict[AttemptKey, tuple[str, float]] = field(default_factory=dict)
    """Slow work that is under way, and since when."""

    def tell(self, key: AttemptKey, data: EventData, at: float | None = None) -> None:
        """Report an event to the server, with the current time by default."""
        self.shipper.tell(Event(*key, time.time() if at is None else at, data))

    def note(self, order: Order, level: Level, text: str) -> None:
        """Send a note to the followers of the run."""
        self.tell(order.key, Noted(text, level))

    def track(self, order: Order, paths: AttemptPaths) -> None:
        """Deliver the attempt's streams from now on."""
        self.shipper.track(order.key, paths, order.log_limit_bytes, order.masked)

    def doing(self, key: AttemptKey, text: str) -> None:
        """Report slow work that is under way; empty when it is over."""
        if text:
            self.under_way[key] = (text, self.under_way.get(key, ("", time.time()))[1])
        else:
            self.under_way.pop(key, None)
