"""Environments that this node fetches from others of its workspace, or shares with them. In a worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from muster.agent.link import Trouble
from muster.agent.mover import Failed
from muster.agent.prepare.bundles import Bundles, packed_access
from muster.environments.failures import Failure
from muster.environments.venvs.others import Opened
from muster.host.children import Abandoned
from muster.wire.node.builds import PACKED_NAME, EnvironmentClaim

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0


class NodeEnvironments:
    """The shared environments of one attempt or build; without the server everything is built here."""

    def __init__(self, bundles: Bundles, unwanted: threading.Event) -> None:
        self._bundles = bundles
        self._unwanted = unwanted
        self._claimed: set[str] = set()

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool], what: str) -> Iterator[Path | None]:
        """The packed environment; None: it is here by now, or this node has the claim to build it."""
        claim = self._claim(key, is_here, what)
        if claim is None or claim.packed is None:
            yield None
            return
        try:
            with self._bundles.staged("environment", key, packed_access(claim.packed, what), what) as data:
                packed: Path | None = data / PACKED_NAME
                yield packed
            return
        except Failed as error:
            log.warning("%s (%s) could not be fetched from other nodes, and is built here: %s", what, key, error)
        yield None

    def keep(self, key: str, opened: Opened, what: str) -> None:
        """Share an environment that was built here; returns before that is done."""
        if key in self._claimed:
            self._claimed.discard(key)
            threading.Thread(target=self._offer, args=(key, opened, what), name="offer", daemon=True).start()

    def close(self) -> None:
        for key in sorted(self._claimed):
            self._release(key)
        self._claimed.clear()

    def _claim(self, key: str, is_here: Callable[[], bool], what: str) -> EnvironmentClaim | None:
        """The server's answer, after waiting for a node that builds it; None: it is here, or there is no server."""
        while True:
            try:
                claim = self._bundles.link.claim_environment(key)
            except Trouble as error:
                log.warning("%s (%s) is not shared: %s", what, key, error)
                return None
            if claim.state == "build":
                self._claimed.add(key)
            if claim.state != "wait":
                return claim
            self._bundles.doing(f"waiting for another node that makes {what} ready")
            if self._unwanted.wait(_ASK_AGAIN_S):
                raise Abandoned(f"nobody wants {what} any more")
            if is_here():
                return None

    def _offer(self, key: str, opened: Opened, what: str) -> None:
        # It may outlast the attempt that built it.
        mover = replace(self._bundles.mover, unwanted=threading.Event())
        bundles = replace(self._bundles, mover=mover)
        try:
            with opened() as folder:
                bundles.link.keep_environment(key, bundles.offer(key, folder, what))
        except (Failed, Failure, OSError, *Trouble) as error:
            log.warning("%s (%s) cannot be shared with other nodes: %s", what, key, error)
            self._release(key)
        finally:
            bundles.link.close()

    def _release(self, key: str) -> None:
        try:
            self._bundles.link.release_environment(key)
        except Trouble as error:
            log.info("the claim on %s was not given back: %s", key, error)
