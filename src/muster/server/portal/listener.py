"""A loopback port for browsers, for a server without a port: opened on first use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from muster.defaults import SERVER_LEAVE_S
from muster.host.files import PRIVATE, write_file

log = logging.getLogger("muster.server")

_HOST = "127.0.0.1"


class LoopbackListener:
    """Listens on 127.0.0.1, at a port that is chosen once and kept, so that addresses stay valid."""

    def __init__(self, serve: Callable[[], uvicorn.Server], remembered: Path, url: str | None) -> None:
        self._serve = serve
        self._remembered = remembered
        self._url = url
        self._serving: tuple[uvicorn.Server, asyncio.Task[Any]] | None = None
        if url is None and remembered.exists():
            # So that pages that are still open find the server again.
            self._open()

    async def url(self) -> str:
        """The URL for browsers on this machine."""
        return self._url or self._open()

    async def close(self) -> None:
        if self._serving is None:
            return
        server, task = self._serving
        server.should_exit = True
        await asyncio.wait([task], timeout=SERVER_LEAVE_S)
        task.cancel()

    def _open(self) -> str:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, self._kept_port()))
        except OSError:
            listener.bind((_HOST, 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        with contextlib.suppress(OSError):
            write_file(self._remembered, str(port), mode=PRIVATE)
        server = self._serve()
        self._serving = (server, asyncio.create_task(server.serve([listener])))
        self._url = f"http://{_HOST}:{port}"
        log.info("the portal is served at %s", self._url)
        return self._url

    def _kept_port(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            port = int(self._remembered.read_text())
            return port if 1024 <= port <= 65535 else 0
        return 0
