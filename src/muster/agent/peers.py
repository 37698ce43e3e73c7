"""Sharing staged data with other nodes: the process that serves this node's blocks, and reports about them."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from muster.agent.link import Link
from muster.agent.run.variables import NODE_MARK
from muster.errors import MusterError
from muster.host.children import Child, ChildEnded
from muster.host.network import in_url
from muster.paths import NodePaths, data_cache_dir
from muster.storage.peers.messages import Serve, Serving
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.node.agents import AttemptKey
from muster.wire.node.peers import BlocksAnswer, BlocksReport, BlocksRequest, SharedKind

log = logging.getLogger(__name__)

_END_S = 2.0
_START_S = 60.0


@dataclass(frozen=True)
class Shared:
    """Something that nodes fetch from each other."""

    kind: SharedKind
    name: str
    own_cache: bool
    """It is stored in a cache that only this node has."""


class Peers:
    """One per node; callable from any thread. Whatever fails here, nodes fall back to the source."""

    def __init__(self, link: Link, paths: NodePaths, node: str, address: str, mark: str) -> None:
        self._link = link
        self._paths = paths
        self.node = node
        self._address = address
        self._mark = mark
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._url = ""

    def cache(self, own: bool) -> Path:
        """The cache for staged data: the host's, or one that only this node has."""
        return self._paths.data_cache if own else data_cache_dir()

    def exchange(self, key: AttemptKey, what: Shared, report: BlocksReport) -> BlocksAnswer | None:
        """Report how far an attempt's input is; returns who else has it, or None where that fails."""
        try:
            url = self._serving(self.cache(what.own_cache))
            answer = self._link.blocks(BlocksRequest(*key, what.name, url, report, what.kind))
            if answer.unknown:
                # The server was restarted, and no longer knows this node.
                self.close()
            return answer
        except MusterError as error:
            log.info("%s of %s is not shared for now: %s", what.name, key, error)
            return None

    def close(self) -> None:
        """Stop serving."""
        with self._lock:
            child, self._child, self._url = self._child, None, ""
        if child is not None:
            child.end(_END_S)

    def _serving(self, cache: Path) -> str:
        """The URL of this node's blocks; the process that serves them is started when it is first needed."""
        with self._lock:
            if self._child is not None and self._child.wait(0) is not None:
                log.warning("the process that served blocks has ended; another one is started")
                self._child.end()
                self._child = None
            if self._child is None:
                self._child, self._url = self._start(cache)
            return self._url

    def _start(self, cache: Path) -> tuple[Child | None, str]:
        identity = self._link.introduce_peer()
        child = Child([sys.executable, "-m", "muster.storage.peers"], environment={**os.environ, NODE_MARK: self._mark})
        try:
            child.send(to_json(Serve(self.node, self._address, str(cache), identity)))
            port = from_json(Serving, child.receive(threading.Event(), _patience())).port
            return child, f"https://{in_url(self._address)}:{port}"
        except (ChildEnded, WireError) as error:
            child.end()
            log.warning("this node serves no blocks to others: %s", error)
            return None, ""


def _patience() -> Callable[[], None]:
    """Gives a process up that does not begin: whoever asks for it waits."""
    until = time.monotonic() + _START_S

    def look() -> None:
        if time.monotonic() > until:
            raise ChildEnded(f"it has not begun in {_START_S:g} s")

    return look
