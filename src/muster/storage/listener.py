"""A TCP server with a thread for each connection, and a bounded number of them. Standard library only.

At the limit, a new connection replaces the one that has been idle for longest, and untrusted ones first: a client that
only holds connections open keeps nobody out.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Held:
    """One connection."""

    socket: socket.socket
    is_trusted: bool = False
    is_busy: bool = False
    idle_since: float = field(default_factory=time.monotonic)


class Listener(socketserver.ThreadingTCPServer):
    """Accepts connections."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler], most_connections: int
    ) -> None:
        self._most = most_connections
        self._held: dict[Any, _Held] = {}
        self._places = threading.Lock()
        super().__init__(address, handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @contextmanager
    def answering(self, client_address: Any) -> Iterator[None]:
        """Keep the connection while a request is answered; afterwards it counts as idle."""
        held = self._held.get(client_address)
        if held is None:
            # It was dropped a moment ago.
            raise ConnectionAbortedError("others needed the connection's place")
        held.is_busy = True
        try:
            yield
        finally:
            held.idle_since, held.is_busy = time.monotonic(), False

    def trust(self, client_address: Any) -> None:
        """Drop this connection only after those that have not shown a grant."""
        if held := self._held.get(client_address):
            held.is_trusted = True

    def wrapped(self, request: socket.socket) -> socket.socket:
        """The socket that the connection continues on; called in its own thread."""
        return request

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._take_place(request, client_address):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._held.pop(client_address, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        held = self._held.get(client_address)
        try:
            wrapped = self.wrapped(request)
            if held is not None:
                held.socket = wrapped
            super().process_request_thread(wrapped, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            # Another one may have come from the same port since this one was dropped.
            if self._held.get(client_address) is held:
                self._held.pop(client_address, None)

    def _take_place(self, request: socket.socket, client_address: Any) -> bool:
        with self._places:
            if len(self._held) >= self._most and not self._give_up_one():
                return False
            self._held[client_address] = _Held(request)
            return True

    def _give_up_one(self) -> bool:
        idle = [item for item in list(self._held.items()) if not item[1].is_busy]
        if not idle:
            return False
        address, held = min(idle, key=lambda item: (item[1].is_trusted, item[1].idle_since))
        self._held.pop(address, None)
        with suppress(OSError):
            # Even under TLS only the TCP socket is shut down: its thread wakes up and closes the rest.
            socket.socket.shutdown(held.socket, socket.SHUT_RDWR)
        return True
