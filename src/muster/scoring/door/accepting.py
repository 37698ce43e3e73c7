"""Connections at an endpoint's address: accepted, no longer accepted, counted."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, List, Optional

from muster.scoring.door.table import Table
from muster.scoring.listening import bounded, most_connections

_LOOK_S = 0.005
_HANDSHAKE_S = 10.0


class Acceptor:
    """Takes connections from a listener that others hold as well, for one application.

    When one stops, the connections that wait in the listener are left to the others: none is lost.
    """

    def __init__(self, uvicorn: Any, app: Any, server: Any) -> None:
        self._config = uvicorn.Config(app, **options())
        self._config.load()
        self._server = server
        """The process's own uvicorn server: it keeps the clock, and when it ends so do we."""
        self._listening: Any = None
        self._certificate = ""
        self.listener: Optional[socket.socket] = None

    async def start(self, listener: socket.socket, table: Table) -> None:
        """Take connections from this listener only, which we own from now on."""
        self.stop()
        self._certificate = table.certificate
        tls = _context(table) if table.certificate else None
        while not self._server.started:
            await asyncio.sleep(_LOOK_S)
        self.listener = listener
        # A copy, because stop() closes it.
        self._listening = await asyncio.get_running_loop().create_server(
            self._protocol,
            sock=listener.dup(),
            backlog=self._config.backlog,
            ssl=tls,
            ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
        )
        self._server.servers.append(self._listening)

    async def follow(self, table: Table) -> None:
        """Use the table's certificate for new connections, if it has a new one."""
        if self.listener is not None and table.certificate != self._certificate:
            await self.start(self.listener.dup(), table)

    def stop(self) -> None:
        """Take no more connections; the open ones stay."""
        if self._listening is not None:
            self._listening.close()
            self._server.servers.remove(self._listening)
            self._listening = None
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    @property
    def connections(self) -> List[Any]:
        """The open connections."""
        return [item for item in self._server.server_state.connections if item.config is self._config]

    def _protocol(self) -> Any:
        return self._config.http_protocol_class(
            config=self._config, server_state=self._server.server_state, app_state={}, _loop=asyncio.get_running_loop()
        )


def _context(table: Table) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The key comes from a file and must not be written to another: this one is memory, and goes with the block.
    with os.fdopen(os.memfd_create("certificate"), "w+b") as file:
        file.write((table.private_key + "\n" + table.certificate).encode())
        file.flush()
        context.load_cert_chain("/proc/self/fd/{}".format(file.fileno()))
    return context


def options() -> Any:
    """uvicorn's options for HTTP, in front doors and in replicas."""
    return {
        "log_level": "error", "access_log": False, "lifespan": "off", "server_header": False, "ws": "none",
        "http": bounded(), "limit_concurrency": most_connections(), "timeout_graceful_shutdown": 25,
        "timeout_keep_alive": 75, "proxy_headers": False,
    }  # fmt: skip
