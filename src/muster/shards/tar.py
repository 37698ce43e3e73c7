"""Tar shards in WebDataset's layout: the files of a sample are adjacent and share their name up to the first dot."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.errors import JobError

BLOCK = 512
TAR_END = b"\0" * (2 * BLOCK)
_PLAIN_FILE = (b"0", b"\0")
_NAME, _SIZE, _MAGIC, _PREFIX = slice(0, 100), slice(124, 136), slice(257, 262), slice(345, 500)
ABSENT = (-1, 0)


@dataclass(frozen=True)
class Places:
    """Where each sample's parts lie in a shard: offset and size by field, `ABSENT` where a sample has no such part."""

    size: int
    """The shard's size: places of another shard are of no use."""
    keys: list[str]
    fields: dict[str, list[tuple[int, int]]]

    def to_text(self) -> str:
        return json.dumps({"size": self.size, "keys": self.keys, "fields": self.fields}, separators=(",", ":"))


def places_from_text(text: str, size: int) -> Places | None:
    """What `to_text` wrote; None where it is damaged or of a shard of another size."""
    try:
        given = json.loads(text)
        fields = {str(name): [(int(at), int(long)) for at, long in places] for name, places in given["fields"].items()}
        found = Places(int(given["size"]), [str(key) for key in given["keys"]], fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    whole = all(len(places) == len(found.keys) for places in fields.values())
    inside = all(
        place == ABSENT or (0 <= place[0] <= size - place[1] and place[1] >= 0)
        for places in fields.values()
        for place in places
    )
    return found if found.size == size and whole and inside else None


def scan(path: Path) -> Places:
    """Find the samples of a shard by going from header to header; nothing else is read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        keys: list[str] = []
        fields: dict[str, list[tuple[int, int]]] = {}
        for name, offset, length in _members(path, file.fileno()):
            key, field = split_name(name)
            if field is None:
                continue
            if offset + length > size:
                raise JobError(f"{path} is cut off inside {name}.", "Copy or make the shard again.")
            if not keys or keys[-1] != key:
                keys.append(key)
            places = fields.setdefault(field, [])
            places.extend([ABSENT] * (len(keys) - len(places)))
            places[-1] = (offset, length)
    for places in fields.values():
        places.extend([ABSENT] * (len(keys) - len(places)))
    return Places(size, keys, fields)


def split_name(name: str) -> tuple[str, str | None]:
    """A sample's key, and the field's name (None if it is not part of a sample)."""
    folder, slash, base = name.rpartition("/")
    stem, dot, field = base.partition(".")
    return folder + slash + stem, field.lower() if dot and stem else None


def _members(path: Path, descriptor: int) -> Iterator[tuple[str, int, int]]:
    """Name, offset and length of each file."""
    plain = list(_plain_members(path, descriptor))
    if None not in plain:
        yield from (member for member in plain if member is not None)
        return
    # Long names and the like: rare, and Python's own reader knows them all.
    try:
        with tarfile.open(path, "r:") as tar:
            yield from ((member.name, member.offset_data, member.size) for member in tar if member.isfile())
    except tarfile.TarError as error:
        raise JobError(f"{path} is no tar file that can be read: {error}.", "Copy or make the shard again.") from error


def _plain_members(path: Path, descriptor: int) -> Iterator[tuple[str, int, int] | None]:
    """Ends with None at the first header that is not of a plain file."""
    at = 0
    while True:
        header = os.pread(descriptor, BLOCK, at)
        if len(header) < BLOCK:
            raise JobError(f"{path} is cut off: it has no end.", "Copy or make the shard again.")
        if header.count(0) == BLOCK:
            return
        try:
            length = int(header[_SIZE].rstrip(b"\0 ") or b"0", 8)
            name, prefix = (header[part].partition(b"\0")[0].decode() for part in (_NAME, _PREFIX))
        except ValueError:
            yield None
            return
        if header[156:157] not in _PLAIN_FILE or header[_MAGIC] != b"ustar":
            yield None
            return
        yield f"{prefix}/{name}" if prefix else name, at + BLOCK, length
        at += BLOCK + length + -length % BLOCK


def header(name: str, size: int) -> bytes:
    """A reproducible header: the same bytes as from Python's own writer, made faster."""
    raw, length = name.encode(), b"%011o" % size
    if len(raw) > 100 or len(length) > 11:
        raise JobError(f"{name} with {size:,} bytes does not fit a shard.", "A part of a sample has at most 8 GiB.")
    made = bytearray(_BLANK)
    made[: len(raw)] = raw
    made[124:135] = length
    made[148:154] = b"%06o" % (_BLANK_SUM + sum(raw) + sum(length))
    return bytes(made)


_BLANK = tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT)
_BLANK_SUM = int(_BLANK[148:154], 8) - sum(_BLANK[124:135])


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % BLOCK)
