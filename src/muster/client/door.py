"""A door on this machine's loopback to a server that listens on a socket or with a certificate of its own.

Tools that speak plain HTTP come in by it; each must show a token, as anybody else.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType

from muster.client.calls import Calls
from muster.errors import ServerUnavailable
from muster.host.http import Address, open_connection

_PIECE = 64 << 10
_CONNECT_S = 10.0


class Door:
    """Passes bytes on between a port of the loopback and the server."""

    def __init__(self, calls: Calls, port: int = 0) -> None:
        self._calls = calls
        self._listening = socket.create_server(("127.0.0.1", port))
        self._closed = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Door:
        threading.Thread(target=self._serve, name="door", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        # Closing alone would not wake the thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def wait(self) -> None:
        """Stay open until somebody interrupts."""
        while not self._closed.wait(3600.0):
            pass

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(came,), daemon=True).start()

    def _pass_on(self, came: socket.socket) -> None:
        with contextlib.suppress(OSError, ServerUnavailable), came, self._reach() as server:
            _relay(came, server)

    def _reach(self) -> socket.socket:
        try:
            return _raw(self._calls.address)
        except OSError:
            # An idle server has ended; the next one listens elsewhere.
            self._calls.find_again()
            return _raw(self._calls.address)


def _raw(address: Address) -> socket.socket:
    connection = open_connection(address, _CONNECT_S, external=False, tls=None)
    connection.connect()
    reached: socket.socket = connection.sock
    reached.settimeout(None)
    return reached


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Bytes both ways until either side has had enough."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                data = source.recv(_PIECE)
                if not data:
                    return
                key.data.sendall(data)
                # A TLS connection may hold more than its descriptor shows.
                while (pending := getattr(source, "pending", None)) is not None and pending():
                    key.data.sendall(source.recv(_PIECE))
