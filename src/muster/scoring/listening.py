"""Client connections, with limits on how much they send before a request and how slowly they read the answer."""

from __future__ import annotations

import asyncio
import errno
import importlib
import resource
import socket
from typing import Any, Dict, Type

HEADER_BYTES = 64 << 10
HEADER_S = 20.0
MOST_UNFINISHED = 256
"""Connections whose request headers are not complete; beyond that the oldest is closed."""
TAKE_S = 120.0
"""How long a client may leave an answer unread."""
_OTHER_FILES = 128
_LEAST_CONNECTIONS = 64
_BACKLOG = 2048
_LOCK_FILTER = 44
GONE = "muster.gone"
"""In the scope of a request: the future that is done once the client has closed its connection."""
_NOBODY = "198.51.100.1"
"""An address that nobody has: the route to it is the default route."""


def listener_on(host: str, port: int = 0) -> socket.socket:
    """A socket that accepts connections for any process, on no more addresses than the one that is asked for.

    A node whose address is translated on the way cannot listen on it, and listens on the address of its default route.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            listener.close()
            raise
        listener.bind((_outward(), port))
    listener.listen(_BACKLOG)
    return listener


def keep_open_to_all(listener: socket.socket) -> None:
    """Have the agent leave a port open to clients outside of the cluster's subnet."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, _LOCK_FILTER, 1)
    except OSError:
        pass  # a system without filters: nobody closes it


def most_connections() -> int:
    """As many as files may be opened, less those that the process opens itself; further clients must come again."""
    return max(_LEAST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)


def bounded() -> Type[Any]:
    """uvicorn's HTTP class, with limits added. Uses the faster parser if it is installed."""
    try:
        base = importlib.import_module("uvicorn.protocols.http.httptools_impl").HttpToolsProtocol
    except ImportError:
        return _with_h11()

    class BoundedHttp(_Bounds, base):  # type: ignore[misc, valid-type]
        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope[GONE] = self._gone
            if self._deadline is None:
                self._await_headers()

        def on_headers_complete(self) -> None:
            self._settle()
            super().on_headers_complete()

    return BoundedHttp


def _with_h11() -> Type[Any]:
    base = importlib.import_module("uvicorn.protocols.http.h11_impl").H11Protocol
    idle = importlib.import_module("h11").IDLE

    class BoundedHttp(_Bounds, base):  # type: ignore[misc, valid-type]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # This parser counts the bytes of unfinished headers itself.
            if self.conn.their_state is not idle:
                self._settle()
            elif self._deadline is None and self.conn.trailing_data[0]:
                self._await_headers()

    return BoundedHttp


class _Bounds:
    """Limits for both parsers: a time for the headers, a number of slow senders, a time to read the answer."""

    _unfinished: "Dict[_Bounds, None]" = {}
    _deadline: Any = None
    _taking: Any = None
    _header_bytes = 0
    _gone: "asyncio.Future[None]"
    transport: Any
    loop: Any

    def connection_made(self, transport: Any) -> None:
        self._gone = self.loop.create_future()
        super().connection_made(transport)  # type: ignore[misc]
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        if self._deadline is not None:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._drop()

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._taking = self.loop.call_later(TAKE_S, self._drop)

    def resume_writing(self) -> None:
        self._end_taking()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Any) -> None:
        self._settle()
        self._end_taking()
        if not self._gone.done():
            self._gone.set_result(None)
        super().connection_lost(exc)  # type: ignore[misc]

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

    def _end_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _drop(self) -> None:
        self._settle()
        self._end_taking()
        self.transport.abort()


def _outward() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel only chooses the route.
        probe.connect((_NOBODY, 443))
        return str(probe.getsockname()[0])
