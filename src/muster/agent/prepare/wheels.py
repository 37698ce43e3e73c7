"""Compiled wheels that this node shares with the others of its workspace, through the server. In a worker."""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path

from muster.agent.link import Link, Trouble
from muster.host.files import is_safe_path
from muster.wire.node.builds import CompiledWheel

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 2.0
_PIECE = 1 << 20


class NodeWheels:
    """The wheels of one build; without the server everything is compiled here."""

    def __init__(self, link: Link, unwanted: threading.Event) -> None:
        self._link = link
        self._unwanted = unwanted
        self._claimed: set[str] = set()

    def find(self, key: str, folder: Path) -> bool:
        """Fetch a wheel, waiting for another node that compiles it; False: this node must compile it."""
        try:
            while (claim := self._link.claim_wheel(key)).state == "wait":
                if self._unwanted.wait(_ASK_AGAIN_S):
                    return False
            if claim.state == "compile" or claim.wheel is None:
                self._claimed.add(key)
                return False
            return self._fetch(key, claim.wheel, folder)
        except Trouble as error:
            log.warning("the compiled wheel %s did not arrive, and is compiled here: %s", key, error)
            return False

    def keep(self, key: str, wheel: Path) -> None:
        try:
            with wheel.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                about = CompiledWheel(wheel.name, wheel.stat().st_size, digest)
                self._link.put_wheel(key, about, file)
            self._claimed.discard(key)
        except Trouble as error:
            log.warning("the compiled wheel %s stays here: %s", wheel.name, error)

    def close(self) -> None:
        for key in sorted(self._claimed):
            try:
                self._link.release_wheel(key)
            except Trouble as error:
                log.info("the claim on the wheel %s was not given back: %s", key, error)
        self._claimed.clear()

    def _fetch(self, key: str, wheel: CompiledWheel, folder: Path) -> bool:
        if not is_safe_path(wheel.name) or "/" in wheel.name:
            return False
        found, digest = folder / wheel.name, hashlib.sha256()
        with self._link.wheel(key) as arriving, found.open("wb") as file:
            while piece := arriving.read(_PIECE):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() == wheel.sha256:
            return True
        log.warning("the compiled wheel %s arrived damaged, and is compiled here", wheel.name)
        found.unlink()
        return False
