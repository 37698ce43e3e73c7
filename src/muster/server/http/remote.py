"""How agents on other machines reach this server: TLS on a port that stays the same, and a folder that they share."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from muster.defaults import (
    SERVER_LEAVE_S,
    SPOOL_BUSY_S,
    SPOOL_CLEAN_S,
    SPOOL_OLD_S,
    SPOOL_POLL_REMOTE_S,
    SPOOL_POLL_S,
    WATCH_S,
)
from muster.engines.base import Connection as Reach
from muster.host.files import PRIVATE, write_file
from muster.host.spool import ANSWER, PART, REQUEST
from muster.server.context import Context
from muster.server.database.connection import on_network_filesystem
from muster.server.nodes.clusters import reach_of_remote_clusters

log = logging.getLogger("muster.server")

_PIECE = 1 << 20

Serve = Callable[[Path, Path], uvicorn.Server]


class RemoteListener:
    """Opened with the first cluster whose nodes are other machines; from then on by every life of the server."""

    def __init__(
        self, context: Context, serve: Serve, socket_path: Path, url: str | None, certificate: Path | None
    ) -> None:
        self._context = context
        self._serve = serve
        self._socket_path = socket_path
        self._tasks: list[asyncio.Task[Any]] = []
        self._server: uvicorn.Server | None = None
        if url and certificate:
            # It serves a team with TLS already.
            context.remote.addresses, context.remote.certificate = (url,), certificate.read_text()

    async def open(self) -> None:
        """Listen, where some cluster needs it and nobody does yet; called again after every new cluster."""
        wanted = await self._context.database.read(partial(reach_of_remote_clusters, self._context))
        if wanted is None or self._tasks:
            return
        folder = self._context.paths.spool
        folder.mkdir(mode=0o700, exist_ok=True)
        self._tasks.append(asyncio.create_task(serve_spool(folder, self._socket_path)))
        if not self._context.remote.addresses:
            self._listen(wanted)

    async def close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            await asyncio.wait(self._tasks[1:], timeout=SERVER_LEAVE_S)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _listen(self, wanted: Reach) -> None:
        from muster.server.http.tls import self_signed

        host = wanted.server_address or socket.gethostname()
        remembered = self._context.paths.tls_dir / "port"
        certificate, key = self_signed(self._context.paths.tls_dir, host)
        listener = _bind(wanted.server_port or (int(remembered.read_text()) if remembered.exists() else 0))
        port = listener.getsockname()[1]
        write_file(remembered, str(port), mode=PRIVATE)
        self._context.remote.addresses = (f"https://{host}:{port}",)
        self._context.remote.certificate = certificate.read_text()
        self._server = self._serve(certificate, key)
        self._tasks.append(asyncio.create_task(self._server.serve([listener])))
        log.info("agents on other machines reach this server at %s", self._context.remote.addresses[0])


def _bind(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("0.0.0.0", port))
    except OSError as error:
        log.warning("port %d is taken (%s): another is chosen; agents that know the old one use the shared folder",
                    port, error)  # fmt: skip
        listener.bind(("0.0.0.0", 0))
    listener.listen(1024)
    return listener


async def serve_spool(folder: Path, socket_path: Path) -> None:
    """Answer calls that come as files, by passing each to this server's own socket."""
    under_way: dict[str, asyncio.Task[None]] = {}
    loop = asyncio.get_running_loop()
    is_remote = on_network_filesystem(folder)
    fast_s, slow_s = SPOOL_POLL_REMOTE_S if is_remote else SPOOL_POLL_S
    last, cleaned = loop.time(), float("-inf")
    while True:
        try:
            if loop.time() - cleaned > SPOOL_CLEAN_S:
                cleaned = loop.time()
                await asyncio.to_thread(remove_old, folder, time.time() - SPOOL_OLD_S)
            names = await asyncio.to_thread(_waiting, folder, is_remote)
        except OSError as error:
            log.warning("the folder %s cannot be read: %s", folder, error)
            await asyncio.sleep(WATCH_S)
            continue
        for name in names:
            if name not in under_way:
                last = loop.time()
                task = under_way[name] = asyncio.create_task(_answer(folder / name, socket_path))
                task.add_done_callback(lambda _task, name=name: under_way.pop(name, None))  # type: ignore[misc]
        await asyncio.sleep(fast_s if loop.time() - last < SPOOL_BUSY_S else slow_s)


def _waiting(folder: Path, is_remote: bool) -> list[str]:
    if is_remote:
        # A change of its own makes this host forget what it remembers of the folder.
        probe = folder / f"look-{os.getpid()}"
        probe.touch()
        probe.unlink()
    return [path.name for path in folder.iterdir() if path.suffix == REQUEST]


def remove_old(folder: Path, before: float) -> None:
    """Answers that nobody fetched, and calls that nobody finished."""
    for path in folder.iterdir():
        try:
            if path.suffix in (ANSWER, PART) and path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue


async def _answer(request: Path, socket_path: Path) -> None:
    part, answer = request.with_suffix(PART), request.with_suffix(ANSWER)
    left_over = False
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket_path))
        try:
            with request.open("rb") as source:
                while piece := await asyncio.to_thread(source.read, _PIECE):
                    writer.write(piece)
                    await writer.drain()
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as target:
                while piece := await reader.read(_PIECE):
                    await asyncio.to_thread(target.write, piece)
        finally:
            writer.close()
        if request.exists():
            part.rename(answer)
    except (OSError, asyncio.IncompleteReadError) as error:
        log.warning("the call %s was not answered: %s", request.name, error)
    except asyncio.CancelledError:
        # The next life of the server answers it.
        left_over = True
        raise
    finally:
        if not left_over:
            request.unlink(missing_ok=True)
        part.unlink(missing_ok=True)
