"""What the server's parts share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from muster.control.scheduling.model import Node
from muster.engines.base import Engine, NodeOffer
from muster.paths import WorkspacePaths
from muster.server.access import Tokens
from muster.server.board import Board
from muster.server.database import Database
from muster.server.hub import Hub
from muster.store.backend import Store
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams


@dataclass
class Context:
    """One workspace, as its server holds it."""

    workspace_id: str
    paths: WorkspacePaths
    database: Database
    store: Store
    snapshots: Snapshots
    streams: Streams
    tokens: Tokens
    hub: Hub
    engines: Mapping[str, Engine]
    addresses: tuple[str, ...]
    """Where agents reach this server."""
    certificate: str | None = None
    retry: Mapping[str, Any] = field(default_factory=dict)
    """The workspace's defaults of `retry` in a job file."""
    board: Board = field(default_factory=Board)
    """What waits, and why."""
    offered: dict[str, tuple[Sequence[NodeOffer], list[Node]]] = field(default_factory=dict)
    """The nodes of clusters as their engines offered them last, and as the scheduler sees them."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    touched: float = field(default_factory=time.monotonic)
    """When a client last asked for something."""

    def open(self, location: str) -> BinaryIO:
        """An object of the workspace, wherever its bytes are by now."""
        growing = self.streams.find(location)
        return growing.open("rb") if growing else self.store.open(location)

    def publish(self, run: str, attempt: int) -> None:
        """Bring an ended attempt's streams to the store, in the background: until then they are read here."""
        if self.store.local_root is None:
            self.hub.in_background(lambda: self.streams.publish(self.store, run, attempt))
