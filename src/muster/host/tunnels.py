"""A tunnel's end, for clients and agents: a connection to the server that becomes a stream."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from muster.host.http import Address
from muster.host.server import ServerConnection
from muster.host.streams import End, SocketEnd

PROTOCOL = "muster-tunnel"
_KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Keep-alive settings by which a vanished machine is noticed within a minute."""


def dial(address: Address, path: str, timeout_s: float) -> socket.socket:
    """Open one end of a tunnel; raises like a request where the server refuses."""
    connection = ServerConnection(address, timeout_s)
    try:
        end = connection.upgrade(path, PROTOCOL)
    except BaseException:
        connection.close()
        raise
    keep_alive(end)
    return end


def keep_alive(end: socket.socket) -> None:
    """Have the kernel notice when the other machine is gone."""
    if end.family == socket.AF_UNIX:
        return
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end_of(connection: socket.socket) -> End:
    """The connection as one end of a stream."""
    return TlsEnd(connection) if isinstance(connection, ssl.SSLSocket) else SocketEnd(connection)


class TlsEnd(End):
    """A socket with TLS. Polling does not show decrypted data that is still unread, so every read drains it."""

    def __init__(self, end: ssl.SSLSocket) -> None:
        end.setblocking(False)
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_into(self, target: memoryview) -> int | None:
        filled = 0
        while filled < len(target):
            try:
                got = self._socket.recv_into(target[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
                return filled or None
            except OSError:
                return filled
            if got == 0:
                return filled
            filled += got
        return filled

    def write(self, data: memoryview) -> int | None:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return None
        except OSError:
            return 0

    def close(self) -> None:
        self._socket.close()
