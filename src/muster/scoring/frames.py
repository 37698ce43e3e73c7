"""Messages between the processes of one run: JSON lists, each preceded by its length."""

from __future__ import annotations

import json
import socket
import struct
from typing import List, Union

Value = Union[None, bool, int, float, str, List["Value"]]
Message = List[Value]

MOST_BYTES = 1 << 30
_LENGTH = struct.Struct(">I")


class Closed(ConnectionError):
    """The other end went away."""


def send(connection: socket.socket, message: Message) -> None:
    """Send one message."""
    body = json.dumps(message).encode()
    if len(body) > MOST_BYTES:
        raise ValueError(
            "a message of {:,} bytes; at most {:,} fit: use smaller mini-batches".format(len(body), MOST_BYTES)
        )
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket) -> Message:
    """The next message; raises Closed when there are no more."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > MOST_BYTES:
        raise Closed("what arrived is no message")
    try:
        message = json.loads(_exactly(connection, length))
    except ValueError:
        raise Closed("what arrived is no message") from None
    if not isinstance(message, list):
        raise Closed("what arrived is no message")
    return message


def _exactly(connection: socket.socket, count: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        try:
            piece = connection.recv(min(count - len(pieces), 1 << 20))
        except OSError as error:
            raise Closed(str(error)) from None
        if not piece:
            raise Closed("the connection ended")
        pieces += piece
    return bytes(pieces)


def text(value: Value) -> str:
    """A field that is a text."""
    if not isinstance(value, str):
        raise Closed("a text was wanted, and {!r} came".format(value))
    return value


def number(value: Value) -> int:
    """A field that is a whole number."""
    if not isinstance(value, int):
        raise Closed("a number was wanted, and {!r} came".format(value))
    return value


def texts(value: Value) -> List[str]:
    """A field that is a list of texts."""
    if not isinstance(value, list):
        raise Closed("a list was wanted, and {!r} came".format(value))
    return [text(item) for item in value]
