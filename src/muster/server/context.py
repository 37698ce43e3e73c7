"""What the server's parts share."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from muster.control.scheduling.model import Node
from muster.engines.base import AllocationState, NodeOffer
from muster.engines.registry import Engines
from muster.job.parts import Retry
from muster.paths import WorkspacePaths
from muster.server.database.connection import Database
from muster.server.hub import Hub
from muster.server.people.access import Tokens
from muster.server.people.vault import Vault
from muster.server.runs.queue import Board
from muster.storage.connectors.datastore import Datastore
from muster.storage.kinds import StoreSpec
from muster.store.backend import Store
from muster.store.keyring import KeyRing
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
    engines: Engines
    addresses: tuple[str, ...]
    """Where agents reach this server."""
    vault: Vault
    """Seals credentials and secrets; signs grants."""
    ring: KeyRing | None = None
    """The keys with which the store is encrypted; None: it is not."""
    certificate: str | None = None
    """What the server presents to those who come over TLS."""
    outside: tuple[str, ...] = ()
    """Where agents on other machines reach this server."""
    open_door: Callable[[], Awaitable[None]] | None = None
    """Listens for other machines once a cluster has some."""
    states: dict[tuple[str, int], AllocationState] = field(default_factory=dict)
    """What engines with a queue of their own said last of each open attempt."""
    told: set[tuple[str, int]] = field(default_factory=set)
    """The attempts whose followers were told why they wait."""
    retry: Retry = field(default_factory=Retry)
    """The workspace's defaults of `retry` in a job file."""
    board: Board = field(default_factory=Board)
    """What waits, and why."""
    offered: dict[str, tuple[Sequence[NodeOffer], list[Node]]] = field(default_factory=dict)
    """The nodes of clusters as their engines offered them last, and as the scheduler sees them."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    reached: dict[str, tuple[StoreSpec, Datastore]] = field(default_factory=dict)
    """Datastores that were opened, by name."""
    grants_checked: dict[str, float] = field(default_factory=dict)
    """When grants were last found to hold."""
    code_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a code snapshot is named, or bytes that none names are removed."""
    touched: float = field(default_factory=time.monotonic)
    """When a client last asked for something."""

    def open(self, location: str) -> BinaryIO:
        """An object of the workspace, wherever its bytes are by now."""
        return self.streams.open(location) or self.store.open(location)

    def forget_store(self, name: str) -> None:
        """A datastore is not what it was: the next use opens it again."""
        self.reached.pop(name, None)

    def publish(self, run: str, attempt: int) -> None:
        """Bring an ended attempt's streams to the store, in the background: until then they are read here."""

        def work() -> None:
            self.streams.publish(self.store, run, attempt)

        if self.store.local_root is None:
            self.hub.in_background(work)
