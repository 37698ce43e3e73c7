"""How agents on other machines reach this server: TLS on a port that stays the same, and a shared folder."""

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
from urllib.parse import urlsplit

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
from muster.host.files import PRIVATE, write_file
from muster.host.network import answer_only
from muster.host.spool import ANSWER, PART, REQUEST
from muster.server.context import Context
from muster.server.database.connection import on_network_filesystem
from muster.server.nodes.clusters import reaches

log = logging.getLogger("muster.server")

_PIECE = 1 << 20
_EVERY_INTERFACE = ("0.0.0.0", "::", None)

Serve = Callable[[Path | None, Path | None], uvicorn.Server]


class RemoteListener:
    """Opened with the first cluster whose nodes are other machines; from then on at every start of the server."""

    def __init__(
        self, context: Context, serve: Serve, socket_path: Path, url: str | None, pair: tuple[Path, Path] | None
    ) -> None:
        """`serve`: makes a server for agents only; `pair`: certificate and key of one that serves a team with TLS."""
        self._context = context
        self._serve = serve
        self._socket_path = socket_path.with_name("agents.sock")
        self.agents_elsewhere = False
        """Every cluster has a port for its agents, so the people's port accepts none."""
        self._spool: asyncio.Task[Any] | None = None
        self._serving: list[tuple[uvicorn.Server, asyncio.Task[Any]]] = []
        self._pair = pair if url else None
        if url and pair:
            # It serves a team with TLS already.
            parts = urlsplit(url)
            context.remote.ports[None], context.remote.certificate = parts.port or 443, pair[0].read_text()
            context.remote.host = parts.hostname if parts.hostname not in _EVERY_INTERFACE else None

    async def open(self) -> list[str]:
        """Listen on every port that some cluster needs; called again after every change. Returns notices."""
        wanted = await self._context.database.read(partial(reaches, self._context))
        if not wanted:
            return []
        if self._spool is None:
            folder = self._context.paths.spool
            folder.mkdir(mode=0o700, exist_ok=True)
            self._serve_agents_here()
            self._spool = asyncio.create_task(serve_spool(folder, self._socket_path))
        ports = self._context.remote.ports
        missing = {None, *(reach.server_port for reach in wanted.values())} - ports.keys() - set(ports.values())
        notices = [self._listen(port) for port in sorted(missing, key=lambda port: port or 0)]
        self.agents_elsewhere = all(reach.server_port for reach in wanted.values())
        for name, reach in wanted.items():
            urls = await asyncio.to_thread(self._context.remote.urls, reach)
            log.info("agents of %s reach this server at %s", name, ", ".join(urls))
        return [text for text in notices if text]

    async def close(self) -> None:
        for server, _ in self._serving:
            server.should_exit = True
        tasks = [task for _, task in self._serving]
        if tasks:
            await asyncio.wait(tasks, timeout=SERVER_LEAVE_S)
        tasks += [self._spool] if self._spool is not None else []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._socket_path.unlink(missing_ok=True)

    def _serve_agents_here(self) -> None:
        """Open a socket for calls that come as files: whoever can write to that folder may call what agents may."""
        self._socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._socket_path))
        self._socket_path.chmod(PRIVATE)
        listener.listen(128)
        server = self._serve(None, None)
        self._serving.append((server, asyncio.create_task(server.serve([listener]))))

    def _listen(self, wanted: int | None) -> str:
        """Listen on a port, or on one that is chosen once and kept; returns a notice where the port is in use."""
        from muster.server.http.tls import self_signed

        remote, folder = self._context.remote, self._context.paths.tls_dir
        certificate, key = self._pair or self_signed(folder, socket.gethostname())
        remembered = folder / "port"
        port = wanted or (int(remembered.read_text()) if remembered.exists() else 0)
        notice = ""
        try:
            listener = _bind(port)
        except OSError as error:
            listener = _bind(0)
            other = listener.getsockname()[1]
            notice = f"server_port {port} is taken here ({error.strerror}), so nodes are given port {other}"
            log.warning("%s; agents that know the old one use the shared folder", notice)
        if self._context.grants_subnet is not None:
            # A caller from elsewhere could read no data here, so it cannot be a node.
            answer_only(listener, [self._context.grants_subnet])
        remote.ports[wanted] = listener.getsockname()[1]
        if wanted is None:
            write_file(remembered, str(remote.ports[None]), mode=PRIVATE)
        remote.certificate = remote.certificate or certificate.read_text()
        server = self._serve(certificate, key)
        self._serving.append((server, asyncio.create_task(server.serve([listener]))))
        return notice if wanted else ""


def _bind(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("0.0.0.0", port))
    except OSError:
        listener.close()
        raise
    listener.listen(1024)
    return listener


async def serve_spool(folder: Path, socket_path: Path) -> None:
    """Answer calls that come as files by passing each to this server's own socket."""
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
                task = under_way[name] = asyncio.create_task(_answer_call(folder / name, socket_path))
                task.add_done_callback(lambda _task, name=name: under_way.pop(name, None))  # type: ignore[misc]
        await asyncio.sleep(fast_s if loop.time() - last < SPOOL_BUSY_S else slow_s)


def _waiting(folder: Path, is_remote: bool) -> list[str]:
    if is_remote:
        # A change of its own makes this host drop its cached listing of the folder.
        probe = folder / f"look-{os.getpid()}"
        probe.touch()
        probe.unlink()
    return [path.name for path in folder.iterdir() if path.suffix == REQUEST]


def remove_old(folder: Path, before: float) -> None:
    """Remove answers that nobody fetched, and calls that nobody finished."""
    for path in folder.iterdir():
        try:
            if path.suffix in (ANSWER, PART) and path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue


async def _answer_call(request: Path, socket_path: Path) -> None:
    part, answer = request.with_suffix(PART), request.with_suffix(ANSWER)
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket_path))
    except OSError as error:
        # This server is shutting down and the next one will answer it; or it is retried in a moment.
        log.info("the call %s is left for the next server: %s", request.name, error)
        await asyncio.sleep(WATCH_S)
        return
    left_over = False
    try:
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
        # The next server answers it.
        left_over = True
        raise
    finally:
        if not left_over:
            request.unlink(missing_ok=True)
        part.unlink(missing_ok=True)
