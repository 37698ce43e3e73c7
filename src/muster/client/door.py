"""A loopback port that leads to a server which listens on a socket or with a self-signed certificate.

Tools that support only plain HTTP can use it; each must send a token, like any client.
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
    """Relays bytes between a loopback port and the server."""

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
        # Closing alone would not wake the thread that blocks in accept.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def wait(self) -> None:
        """Stay open until interrupted."""
        while not self._closed.wait(3600.0):
            pass

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(accepted,), daemon=True).start()

    def _forward(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError, ServerUnavailable), accepted, self._connect() as server:
            _relay(accepted, server)

    def _connect(self) -> socket.socket:
        try:
            return _raw(self._calls.address)
        except OSError:
            # An idle server ends; the next one listens at another address.
            self._calls.find_again()
            return _raw(self._calls.address)


def _raw(address: Address) -> socket.socket:
    connection = open_connection(address, _CONNECT_S, external=False, tls=None)
    connection.connect()
    reached: socket.socket = connection.sock
    reached.settimeout(None)
    return reached


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Relay bytes both ways until either side closes."""
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
                # A TLS connection may have buffered data that its descriptor does not show.
                while (pending := getattr(source, "pending", None)) is not None and pending():
                    key.data.sendall(source.recv(_PIECE))
