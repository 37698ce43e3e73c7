"""Bounds for connections: how many there are, and how much an unknown caller may send."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 64 << 10
HEADER_S = 20.0
MOST_UNFINISHED = 256
"""How many connections may wait for the end of a request's headers; beyond that the oldest is closed."""
_OTHER_FILES = 128
_CONNECTION = "muster.connection"


def most_connections() -> int:
    """As many as open files are allowed, less what the server opens itself; others are asked to retry."""
    return max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)


class BoundedHttp(HttpToolsProtocol):
    """HTTP whose headers are bounded in size, time and number before they are parsed."""

    _unfinished: ClassVar[dict[BoundedHttp, None]] = {}
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_CONNECTION: {"protocol": self}}
        if self._deadline is None:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._drop()

    def on_headers_complete(self) -> None:
        self._settle()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """No warning: the route handles the upgrade."""

    def take_over(self) -> asyncio.Transport:
        """Release the connection: the caller switches it to a protocol of its own, and no response follows."""
        self._settle()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.cycle.disconnected = True
        return self.transport

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._deadline = self.loop.call_later(HEADER_S, self._drop)
        self._unfinished[self] = None
        if len(self._unfinished) > MOST_UNFINISHED:
            next(iter(self._unfinished))._drop()

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._unfinished.pop(self, None)

    def _drop(self) -> None:
        self._settle()
        self.transport.abort()


def taken_over(scope: Scope) -> asyncio.Transport:
    """The connection of a request, no longer used for HTTP; ConnectionResetError where the client has gone."""
    protocol: BoundedHttp = scope["extensions"][_CONNECTION]["protocol"]
    if protocol.transport.is_closing():
        raise ConnectionResetError("the client has gone")
    return protocol.take_over()
