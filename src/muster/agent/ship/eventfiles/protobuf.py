"""Fields of protocol buffers, without their descriptions: enough to pick a few out. Never trusts what it reads."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIGN, _ALL = 1 << 63, 1 << 64
_VARINT_BYTES = 10


class Malformed(ValueError):
    """It is not a valid protocol buffer."""


def fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, kind, content) of each field; the content of a varint is its bytes."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            begin = position
            _, position = _varint(data, position)
        elif kind == FIXED64:
            begin, position = position, position + 8
        elif kind == FIXED32:
            begin, position = position, position + 4
        elif kind == BYTES:
            size, begin = _varint(data, position)
            position = begin + size
        else:
            raise Malformed(f"a field of kind {kind}")
        if position > end or not number:
            raise Malformed("a field is cut off")
        yield number, kind, data[begin:position]


def whole(content: bytes) -> int:
    """A varint as a signed number of 64 bits."""
    value = _varint(content, 0)[0] % _ALL
    return value - _ALL if value >= _SIGN else value


def varints(content: bytes) -> Iterator[int]:
    """Packed varints."""
    position = 0
    while position < len(content):
        begin = position
        _, position = _varint(content, position)
        yield whole(content[begin:position])


def text(content: bytes) -> str:
    return content.decode(errors="replace")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(position + _VARINT_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise Malformed("a number is cut off")
