"""TensorBoard's event files: records in TensorFlow's framing, each an `Event` with a `Summary`. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from muster.agent.ship.eventfiles.points import Point, Taken
from muster.agent.ship.eventfiles.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    fields,
    text,
    varints,
    whole,
)

TOOL = "tensorboard"
_HEADER, _FOOTER = 12, 4
_LARGEST = 64 << 10
"""Longer records are images, graphs and the like; a scalar's has some dozens of bytes."""
_LONGEST = 1 << 40

_WALL_TIME, _STEP, _SUMMARY, _VALUE = 1, 2, 5, 1
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT = 1, 4
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 17: "<H", 19: "<e", 22: "<I", 23: "<Q"}
"""How TensorFlow's types are encoded in `tensor_content`."""
_BFLOAT16, _HALF_VALUES, _HALF = 14, 13, 19
_Unpack = Callable[[bytes], list[float]]
_VALUES: dict[int, _Unpack] = {
    5: lambda packed: [value for (value,) in struct.iter_unpack("<f", packed)],
    6: lambda packed: [value for (value,) in struct.iter_unpack("<d", packed)],
    7: lambda packed: [float(value) for value in varints(packed)],
    10: lambda packed: [float(value) for value in varints(packed)],
    16: lambda packed: [float(value) for value in varints(packed)],
    17: lambda packed: [float(value) for value in varints(packed)],
}
"""The fields of a tensor that hold its numbers, packed."""


def take(data: bytes, offset: int) -> Taken:
    """The scalars in the whole records of a stretch; `offset` is where it begins in its file."""
    del offset
    taken = Taken()
    position = 0
    while len(data) - position >= _HEADER:
        size, check = struct.unpack_from("<QI", data, position)
        if size > _LONGEST or check != _masked(data[position : position + 8]):
            taken.broken = True
            break
        begin, end = position + _HEADER, position + _HEADER + size + _FOOTER
        if size > _LARGEST:
            position = end
            continue
        if end > len(data):
            break
        try:
            taken.items += _event(data[begin : begin + size])
        except (Malformed, struct.error):
            taken.lost += 1
        position = end
    taken.consumed = position
    return taken


def _event(record: bytes) -> list[Point]:
    at, step, summaries = 0.0, 0, []
    for number, kind, content in fields(record):
        if number == _WALL_TIME and kind == FIXED64:
            (at,) = struct.unpack("<d", content)
        elif number == _STEP and kind == VARINT:
            step = whole(content)
        elif number == _SUMMARY and kind == BYTES:
            summaries.append(content)
    return [Point(tag, value, float(step), at) for summary in summaries for tag, value in _scalars(summary)]


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, kind, content in fields(summary):
        if number == _VALUE and kind == BYTES:
            tag, value = "", None
            for inner, form, part in fields(content):
                if inner == _TAG and form == BYTES:
                    tag = text(part)
                elif inner == _SIMPLE_VALUE and form == FIXED32:
                    (value,) = struct.unpack("<f", part)
                elif inner == _TENSOR and form == BYTES:
                    value = _single(part)
            if tag and value is not None:
                yield tag, value


def _single(tensor: bytes) -> float | None:
    """The number of a scalar tensor; None for texts, images and anything longer."""
    dtype, found = 0, list[float]()
    content = b""
    for number, kind, part in fields(tensor):
        if number == _DTYPE and kind == VARINT:
            dtype = whole(part)
        elif number == _CONTENT and kind == BYTES:
            content = part
        elif number == _HALF_VALUES and kind == BYTES:
            found += [_from_half(bits, dtype) for bits in varints(part)]
        elif number in _VALUES:
            # A list of one number may also be unpacked.
            found += _VALUES[number](part)
    if content:
        return _from_content(content, dtype)
    return found[0] if len(found) == 1 else None


def _from_content(content: bytes, dtype: int) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return _from_half(int.from_bytes(content, "little"), dtype)
    form = _FORMATS.get(dtype)
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _from_half(bits: int, dtype: int) -> float:
    """The number that 16 bits encode."""
    if not 0 <= bits < 1 << 16:
        raise Malformed("a half of more than 16 bits")
    if dtype == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def _masked(data: bytes) -> int:
    """The checksum of TensorFlow's framing: CRC-32C, rotated and offset."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_CASTAGNOLI = tuple(_table_entry(value) for value in range(256))
