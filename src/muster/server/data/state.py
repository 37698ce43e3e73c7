"""The server's state of its workspace's files and of datastores."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import BinaryIO

from muster.host.egress import Fence
from muster.storage.connectors.datastore import Datastore
from muster.storage.kinds import StoreSpec
from muster.storage.peers.board import Board
from muster.store.arrivals import Arrivals
from muster.store.backend import Store
from muster.store.keyring import KeyRing
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams


@dataclass
class WorkspaceFiles:
    """Code, logs and outputs of the workspace."""

    store: Store
    snapshots: Snapshots
    streams: Streams
    ring: KeyRing | None = None
    """The keys with which the store is encrypted; None: it is not."""
    arrivals: Arrivals = field(init=False)
    """The order in which logs grew."""
    code_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a code snapshot is recorded, or bytes that none names are removed."""

    def __post_init__(self) -> None:
        self.arrivals = Arrivals(self.streams)

    def open(self, location: str) -> BinaryIO:
        """An object of the workspace, wherever its bytes are by now."""
        return self.streams.open(location) or self.store.open(location)


@dataclass(frozen=True)
class UploadTurns:
    """How many request bodies are stored at once: those that have arrived in full, and those that still arrive."""

    short: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(16))
    long: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))


@dataclass(frozen=True)
class PeerKeys:
    """The address and certificate of a node that serves blocks, and the key for grants to them."""

    address: str
    certificate: str
    grant_key: bytes = field(repr=False)


@dataclass
class DataState:
    """What the server remembers of datastores and grants."""

    opened: dict[str, tuple[tuple[StoreSpec, Fence | None], Datastore]] = field(default_factory=dict)
    """Datastores in use, by name."""
    grants_checked: dict[str, float] = field(default_factory=dict)
    """When grants were last found to be valid."""

    uploads: UploadTurns = field(default_factory=UploadTurns)
    storage_calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))
    """Held while a datastore is called."""

    board: Board = field(default_factory=Board)
    """Which nodes have which blocks of staged data."""
    peers: dict[str, PeerKeys] = field(default_factory=dict)
    """Nodes that serve blocks to others."""
    unreachable_told: set[tuple[str, int, str]] = field(default_factory=set)
    """Run, attempt and input for which the notice was given that nodes cannot reach each other."""

    def forget(self, name: str) -> None:
        """Drop a datastore that has changed: the next use opens it again."""
        self.opened.pop(name, None)
