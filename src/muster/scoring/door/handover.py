"""The connection between a front door and a replica on the same machine, over which an endpoint's listener is passed.

Lines of JSON over a socket that is not in the file system; a socket may be sent with a line.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from typing import List, NamedTuple, Optional

_PIECE = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_CONNECT_S = 2.0


class Closed(Exception):
    """The other end is gone."""


class Hello(NamedTuple):
    """The first line that a front door sends."""

    key: str
    url: str
    """The address by which it knows the replica."""

    def line(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @staticmethod
    def parse(text: bytes) -> Hello:
        given = json.loads(text)
        return Hello(str(given["key"]), str(given["url"]))


class Line:
    """One end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._heard = b""
        self._handed: List[socket.socket] = []

    def send(self, text: bytes, handed: Optional[socket.socket] = None) -> None:
        """Send a line; raises OSError."""
        if handed is not None:
            numbers = array.array("i", [handed.fileno()])
            sent = self.connection.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
            text = text[sent:]
        self.connection.sendall(text)

    def send_if_read(self, text: bytes) -> None:
        """Send a line unless the other end does not read; never waits."""
        try:
            self.connection.send(text, socket.MSG_DONTWAIT)
        except OSError:
            pass

    def receive(self) -> List[bytes]:
        """The lines completed by the next piece; raises Closed."""
        numbers = array.array("i")
        try:
            piece, more, _, _ = self.connection.recvmsg(_PIECE, socket.CMSG_LEN(4 * numbers.itemsize))
        except BlockingIOError:
            return []
        except OSError as error:
            raise Closed(str(error)) from None
        for level, kind, data in more:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
        self._handed += [socket.socket(fileno=number) for number in numbers]
        if not piece:
            raise Closed("the other end closed it")
        *lines, self._heard = (self._heard + piece).split(b"\n")
        return lines

    def taken(self) -> Optional[socket.socket]:
        """The socket that came with the last piece, once."""
        found = self._handed.pop() if self._handed else None
        while self._handed:
            self._handed.pop().close()
        return found

    def close(self) -> None:
        self.connection.close()


def wait_for_door(run: str, port: int) -> Optional[socket.socket]:
    """Where a front door finds a replica; None if there can be no such connection."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(_name(run, port))
        listener.listen(4)
    except OSError:
        listener.close()
        return None
    listener.setblocking(False)
    return listener


def reach(run: str, port: int) -> Optional[Line]:
    """Connect to a replica; None if it is on another machine, in a container, or not there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_S)
    try:
        connection.connect(_name(run, port))
        if is_own(connection):
            return Line(connection)
    except OSError:
        pass
    connection.close()
    return None


def is_own(connection: socket.socket) -> bool:
    """Whether the other end is a process of the same user: anybody can take a name."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


def _name(run: str, port: int) -> str:
    # A name that begins with a zero byte is not a file: it goes with its process, and other containers do not see it.
    return "\0muster-replica-{}-{}".format(run, port)
