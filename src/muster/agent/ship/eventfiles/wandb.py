"""The `.wandb` files of Weights & Biases: records in LevelDB's framing, of which history and configuration are read.

Pure. Every run of W&B writes one, also with `WANDB_MODE=offline`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from muster.agent.ship.eventfiles.points import Param, Point, Taken
from muster.agent.ship.eventfiles.protobuf import BYTES, VARINT, Malformed, fields, text, whole
from muster.wire.codec import Json

TOOL = "wandb"
_BLOCK, _HEADER = 32 << 10, 7
_MAGIC = b":W&B"
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _RUN_CONFIG = 2, 5, 17, 4
_ITEM, _STEP, _NUMBER, _UPDATE = 1, 2, 1, 1
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_DEPTH = 4
_LARGEST = 1 << 20
"""Longer records are tables and the like."""
_PARAM_LENGTH = 500


def take(data: bytes, offset: int) -> Taken:
    """The content of the complete records of a stretch; `offset` is where it begins in its file."""
    taken = Taken()
    position, parts, size = 0, list[bytes](), 0
    if offset == 0:
        if len(data) < _HEADER:
            return taken
        if not data.startswith(_MAGIC):
            taken.broken = True
            return taken
        position = taken.consumed = _HEADER
    while True:
        left = _BLOCK - (offset + position) % _BLOCK
        if left < _HEADER:
            position += left
            left = _BLOCK
        if len(data) - position < _HEADER:
            break
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        if not _FULL <= kind <= _LAST or length > left - _HEADER:
            # Somebody else wrote here: skip to the next block, whose position is known.
            position, parts, size = position + left, [], 0
            taken.lost += 1
            taken.consumed = min(position, len(data))
            continue
        chunk = data[position + _HEADER : position + _HEADER + length]
        if len(chunk) < length:
            break
        position += _HEADER + length
        if zlib.crc32(chunk, zlib.crc32(bytes([kind]))) != int.from_bytes(_checksum(data, position, length), "little"):
            parts, size = [], 0
            taken.lost += 1
        elif kind in (_FULL, _FIRST):
            parts, size = [chunk], length
        elif parts:
            parts.append(chunk)
            size += length
        if size > _LARGEST:
            # The rest of this record is skipped: its beginning is missing.
            parts, size = [], 0
        if kind in (_FULL, _LAST) or not parts:
            if parts:
                _read(b"".join(parts), taken)
            parts, size = [], 0
            taken.consumed = position
    return taken


def _checksum(data: bytes, end: int, length: int) -> bytes:
    begin = end - length - _HEADER
    return data[begin : begin + 4]


def _read(record: bytes, taken: Taken) -> None:
    try:
        for number, kind, content in fields(record):
            if kind != BYTES:
                continue
            if number == _HISTORY:
                taken.items += _history(content)
            elif number == _CONFIG:
                taken.items += _config(content)
            elif number == _RUN:
                parts = [part for inner, form, part in fields(content) if inner == _RUN_CONFIG and form == BYTES]
                taken.items += [param for part in parts for param in _config(part)]
    except (Malformed, ValueError, RecursionError):
        taken.lost += 1


def _history(history: bytes) -> list[Point]:
    step: float | None = None
    found: list[tuple[str, float]] = []
    for number, kind, content in fields(history):
        if number == _ITEM and kind == BYTES:
            name, value = _item(content)
            found += _numbers(name, value)
        elif number == _STEP and kind == BYTES:
            steps = [whole(part) for inner, form, part in fields(content) if inner == _NUMBER and form == VARINT]
            step = float(steps[-1]) if steps else 0.0
    own = dict(found)
    step, at = own.get("_step", step), own.get("_timestamp", 0.0)
    return [Point(name, value, step, at) for name, value in found if not name.startswith("_")]


def _config(config: bytes) -> list[Param]:
    items = [_item(content) for number, kind, content in fields(config) if number == _UPDATE and kind == BYTES]
    return [Param(name, _short(value)) for name, value in items if name and not name.startswith("_")]


def _short(value: Json) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return shown[:_PARAM_LENGTH]


def _item(content: bytes) -> tuple[str, Json]:
    """A name and a value; a nested name is joined as W&B shows it."""
    name, nested, value = "", list[str](), b"null"
    for number, kind, part in fields(content):
        if kind != BYTES:
            continue
        if number == _KEY:
            name = text(part)
        elif number == _NESTED_KEY:
            nested.append(text(part))
        elif number == _VALUE_JSON:
            value = part
    return name or ".".join(nested), json.loads(value)


def _numbers(name: str, value: Json, depth: int = 0) -> Iterator[tuple[str, float]]:
    """The numbers of a value, which may be nested mappings; images, tables and histograms have none."""
    if isinstance(value, bool) or not name:
        return
    if isinstance(value, int | float):
        yield name, _float(value)
    elif isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        yield name, float(value)
    elif isinstance(value, dict) and "_type" not in value and depth < _DEPTH:
        for key, inner in value.items():
            yield from _numbers(f"{name}.{key}", inner, depth + 1)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Malformed("a number is too large") from None
