"""The frames of a tunnel: each has a kind, a length and so many bytes. Standard library only, Python 3.8.

The server joins two connections and relays bytes without parsing them; only the two ends know about frames.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

DATA = b"d"
"""Bytes for the remote input, or of the remote output."""
ERRORS = b"e"
"""Bytes of the remote standard error."""
END = b"z"
"""No more bytes follow in this direction."""
WINDOW = b"w"
"""The terminal's new size: rows and columns."""
EXIT = b"x"
"""The command ended with this exit code; the last frame."""
TROUBLE = b"t"
"""The session failed: a sentence; the last frame."""

HEADER_BYTES = 5
PIECE_BYTES = 256 << 10
_HEADER = struct.Struct(">cI")
_WINDOW = struct.Struct(">HH")
_EXIT = struct.Struct(">i")
_STREAMED = (DATA, ERRORS)
_KINDS = (*_STREAMED, END, WINDOW, EXIT, TROUBLE)
_CONTROL_BYTES = 16 << 10


class FrameError(Exception):
    """The received data is not a valid frame."""


class Piece(NamedTuple):
    """Some bytes of a frame; all of them if the frame's kind is not streamed."""

    kind: bytes
    data: memoryview


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return _HEADER.pack(kind, len(payload)) + payload


def put_header(target: memoryview, kind: bytes, length: int) -> None:
    """Write the header in front of bytes that are in a buffer already."""
    _HEADER.pack_into(target, 0, kind, length)


def window(rows: int, columns: int) -> bytes:
    most = 0xFFFF
    return frame(WINDOW, _WINDOW.pack(min(max(rows, 0), most), min(max(columns, 0), most)))


def window_of(payload: memoryview) -> tuple[int, int]:
    """Rows and columns."""
    if len(payload) != _WINDOW.size:
        raise FrameError("a window has two numbers")
    rows, columns = _WINDOW.unpack(payload)
    return rows, columns


def exit_frame(code: int) -> bytes:
    return frame(EXIT, _EXIT.pack(code))


def exit_of(payload: memoryview) -> int:
    if len(payload) != _EXIT.size:
        raise FrameError("an exit code is one number")
    return int(_EXIT.unpack(payload)[0])


class Decoder:
    """Splits a stream into frames; buffers at most one that is not streamed."""

    def __init__(self) -> None:
        self._kind = b""
        self._left = 0
        self._held = bytearray()

    def pieces(self, data: memoryview) -> Iterator[Piece]:
        """The pieces in the data: slices of it, valid until the caller reuses the buffer."""
        while data:
            if not self._kind:
                data = data[self._take_header(data) :]
                if self._is_empty:
                    yield Piece(self._done(), memoryview(b""))
            elif self._kind in _STREAMED:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                yield Piece(self._kind if self._left else self._done(), piece)
            else:
                wanted = self._left - len(self._held)
                self._held += data[:wanted]
                data = data[wanted:]
                if len(self._held) == self._left:
                    whole = memoryview(bytes(self._held))
                    self._held.clear()
                    yield Piece(self._done(), whole)

    @property
    def _is_empty(self) -> bool:
        return bool(self._kind) and not self._left

    def _done(self) -> bytes:
        kind, self._kind = self._kind, b""
        return kind

    def _take_header(self, data: memoryview) -> int:
        """Read available bytes of a header; returns how many."""
        wanted = HEADER_BYTES - len(self._held)
        self._held += data[:wanted]
        if len(self._held) == HEADER_BYTES:
            kind, length = _HEADER.unpack(self._held)
            self._held.clear()
            most = PIECE_BYTES if kind in _STREAMED else _CONTROL_BYTES
            if kind not in _KINDS or length > most:
                raise FrameError(f"{kind!r} with {length} bytes is not a valid frame")
            self._kind, self._left = kind, length
        return wanted
