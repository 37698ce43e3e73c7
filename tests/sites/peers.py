"""Nodes with caches of their own that share data: real staging and real TLS, with the server's part in memory."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster.server.http.tls import made_for
from muster.storage.connectors.base import Source
from muster.storage.grants import Grant, new_id, sign
from muster.storage.peers.blocks import shelf_name, to_text
from muster.storage.peers.board import Board
from muster.storage.peers.messages import Serve
from muster.storage.peers.serving import Server
from muster.storage.staging.cache import Cache
from muster.storage.staging.model import Progress, stored_path
from muster.storage.staging.stage import Together, stage
from muster.wire.data.access import FileEntry
from muster.wire.node.peers import BlocksAnswer, BlocksReport, PeerIdentity, PeerOffer

WHERE = "memory:x"


@dataclass
class PeerSite:
    """The server's part."""

    board: Board = field(default_factory=Board)
    nodes: dict[str, PeerNode] = field(default_factory=dict)
    is_away: bool = False
    notices: list[str] = field(default_factory=list)
    unreachable: set[str] = field(default_factory=set)
    """Nodes that said that they reach nobody."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, root: Path) -> PeerNode:
        certificate, key = made_for(["127.0.0.1"])
        identity = PeerIdentity(certificate.decode(), key.decode(), secrets.token_hex(32))
        node = self.nodes[name] = PeerNode(self, name, root, identity)
        return node

    def answer(self, node: str, report: BlocksReport) -> BlocksAnswer | None:
        if self.is_away:
            return None
        with self.lock:
            shelf = shelf_name(WHERE, report.content)
            heard = self.board.report(shelf, node, self.nodes[node].url, report, time.monotonic())
            self.notices += heard.new_liars
            if report.unreachable:
                self.unreachable.add(node)
            offers = [self.offer(peer.node, shelf, peer.have) for peer in heard.peers]
            return replace(heard.answer, peers=tuple(offers), again_s=0.05)

    def offer(self, name: str, shelf: str, have: int = 0) -> PeerOffer:
        """What opens a node's blocks."""
        node, now = self.nodes[name], time.time()
        grant = Grant(new_id(), name, shelf, False, "read", now, now + 60, "run/r/1")
        token = sign(grant, bytes.fromhex(node.identity.grant_key))
        return PeerOffer(name, node.url, node.identity.certificate, token, to_text(have))

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


@dataclass
class PeerNode:
    """A node: a cache, and what serves it."""

    site: PeerSite
    name: str
    root: Path
    identity: PeerIdentity
    server: Server = field(init=False)
    progress: Progress = field(default_factory=Progress)
    on_exchange: Callable[[BlocksReport], None] = lambda report: None

    def __post_init__(self) -> None:
        self.server = Server(Serve(self.name, "127.0.0.1", str(self.root), self.identity))
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    def stage(self, source: Source, announced: list[FileEntry] | None = None) -> dict[str, bytes]:
        """Every file as it arrived."""
        self.progress = Progress()
        together = Together(self._exchange, self.name)
        held, entries = stage(source, WHERE, "input 'x'", announced, Cache(self.root), self.progress, together)
        try:
            return {entry.path: (held.data / stored_path(entry)).read_bytes() for entry in entries}
        finally:
            held.release()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _exchange(self, report: BlocksReport) -> BlocksAnswer | None:
        self.on_exchange(report)
        return self.site.answer(self.name, report)
