"""Points of one series as columns of bytes: eight per number, anything else as JSON. Pure."""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.wire.codec import Json
from muster.wire.runs import MetricSeries

BLOCK_POINTS = 1024
_HEAD = struct.Struct("<4sIII")
_FLOATS, _WHOLES, _MIXED, _JSON = b"f", b"w", b"m", b"j"
_PART = struct.Struct("<IQ")
_HEAD_FIELDS = ("name", "source", "rank", "attempt", "type", "count", "least", "greatest")
"""The fields of a series that are written before its columns."""
_EXACT = 1 << 53
_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts for numbers that JSON lacks."""


@dataclass
class Points:
    """Points of one series in order of arrival, as columns of the same length."""

    orders: list[int] = field(default_factory=list)
    values: list[Json] = field(default_factory=list)
    steps: list[float | None] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.orders)

    def add(self, order: int, value: Json, step: float | None, at: float) -> None:
        self.orders.append(order)
        self.values.append(value)
        self.steps.append(step)
        self.at.append(at)

    def extend(self, other: Points) -> None:
        self.orders += other.orders
        self.values += other.values
        self.steps += other.steps
        self.at += other.at

    def part(self, begin: int, end: int | None = None) -> Points:
        return Points(self.orders[begin:end], self.values[begin:end], self.steps[begin:end], self.at[begin:end])

    def chosen(self, indices: Iterable[int]) -> Points:
        kept = list(indices)
        return Points(
            [self.orders[index] for index in kept],
            [self.values[index] for index in kept],
            [self.steps[index] for index in kept],
            [self.at[index] for index in kept],
        )


def encode(points: Points) -> bytes:
    """A block as the database keeps it."""
    kind, values = _encode_values(points.values)
    steps = b"" if all(step is None for step in points.steps) else _doubles(_absent(points.steps))
    head = _HEAD.pack(b"1" + kind + b"\0\0", len(points), len(values), len(steps))
    return b"".join((head, values, steps, _doubles(points.at), _wholes(points.orders)))


def decode(data: bytes) -> Points:
    """The points of a block."""
    kinds, count, value_bytes, step_bytes = _HEAD.unpack_from(data)
    begin = _HEAD.size
    values = _decode_values(kinds[1:2], data[begin : begin + value_bytes], count)
    begin += value_bytes
    steps: list[float | None] = [None] * count
    if step_bytes:
        found = _numbers(data[begin : begin + step_bytes])
        steps = [None if step != step else step for step in found] if any(step != step for step in found) else [*found]
    begin += step_bytes
    at = _numbers(data[begin : begin + 8 * count])
    return Points(_whole_numbers(data[begin + 8 * count :]), values, steps, at)


def pack(series: Iterable[MetricSeries]) -> bytes:
    """Series with their points as bytes, for responses that would be long as JSON."""
    parts: list[bytes] = []
    for item in series:
        head = {name: getattr(item, name) for name in _HEAD_FIELDS}
        text = json.dumps(head).encode()
        data = encode(Points([*item.order], [*item.values], [*item.steps], [*item.at]))
        parts += [_PART.pack(len(text), len(data)), text, data]
    return b"".join(parts)


def unpack(packed: bytes) -> list[MetricSeries]:
    """The inverse of `pack`."""
    found, begin = [], 0
    while begin < len(packed):
        text, data = _PART.unpack_from(packed, begin)
        begin += _PART.size
        head = json.loads(packed[begin : begin + text])
        points = decode(packed[begin + text : begin + text + data])
        begin += text + data
        columns = (tuple(points.values), tuple(points.steps), tuple(points.at), tuple(points.orders))
        found.append(MetricSeries(*[head[name] for name in _HEAD_FIELDS], *columns))  # type: ignore[call-arg]
    return found


def _encode_values(values: Sequence[Json]) -> tuple[bytes, bytes]:
    kinds = set(map(type, values))
    if kinds <= {float}:
        return _FLOATS, _doubles(values)
    if kinds <= {int}:
        return _WHOLES, _wholes(values)
    if kinds <= {int, float, str} and all(_fits(value) for value in values):
        doubles = _doubles([_NAMES[value] if isinstance(value, str) else value for value in values])
        whole = array("q", [index for index, value in enumerate(values) if type(value) is int])
        return _MIXED, doubles + _little(whole)
    return _JSON, json.dumps(values, separators=(",", ":")).encode()


def _fits(value: Json) -> bool:
    if isinstance(value, str):
        return value in _NAMES
    return isinstance(value, float) or (isinstance(value, int) and -_EXACT < value < _EXACT)


def _decode_values(kind: bytes, data: bytes, count: int) -> list[Json]:
    if kind == _FLOATS:
        return [*_numbers(data)]
    if kind == _WHOLES:
        return [*_whole_numbers(data)]
    if kind == _JSON:
        found: list[Json] = json.loads(data)
        return found
    values: list[Json] = [_named(value) for value in _numbers(data[: 8 * count])]
    for index in _whole_numbers(data[8 * count :]):
        values[index] = int(values[index])  # type: ignore[arg-type]
    return values


def _named(value: float) -> Json:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _absent(steps: Sequence[float | None]) -> list[float]:
    return [math.nan if step is None else step for step in steps]


def _doubles(values: Iterable[Any]) -> bytes:
    return _little(array("d", values))


def _wholes(values: Iterable[Any]) -> bytes:
    return _little(array("q", values))


def _little(found: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def _numbers(data: bytes) -> list[float]:
    found = array("d")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()


def _whole_numbers(data: bytes) -> list[int]:
    found = array("q")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()
