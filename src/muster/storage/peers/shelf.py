"""What a node has of shared contents, on its disk: written by movers, read by the process that serves others.

shared/NAME.json             which files the content has, and the key under which the cache knows it
trees/.partial/KEY/blocks    the blocks that have arrived, one line each
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from muster.host.files import read_json, write_json
from muster.storage.connectors.base import PIECE_BYTES
from muster.storage.peers.blocks import Part, Row
from muster.storage.staging.cache import read_source
from muster.storage.staging.model import stored_path
from muster.wire.codec import OMIT, WireError, from_json, to_json
from muster.wire.data.access import FileEntry
from muster.wire.message import wire

JOURNAL = "blocks"
_MOST_RECORDS = 500
_MOST_OPENED = 32
"""Contents whose lists of files are kept in memory."""
_MOVED_S = 0.05
_MOVED_TRIES = 10
"""While a content is moved to its final name, it is nowhere for a moment."""


@wire
class Shelved:
    """One content."""

    key: str
    files: tuple[tuple[str, int], ...]
    """Path and size."""
    hashes: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Of all blocks, once it is whole."""


@wire
class _Line:
    """A block that has arrived."""

    block: int
    sha256: str


class BlockJournal:
    """The blocks that have arrived of a content under way."""

    def __init__(self, path: Path) -> None:
        self.blocks: dict[int, str] = {}
        self._lock = threading.Lock()
        for line in _lines(path.read_bytes() if path.exists() else b""):
            self.blocks[line.block] = line.sha256
        self._file = path.open("ab", buffering=0)

    def block(self, block: int, sha256: str) -> None:
        line = json.dumps(to_json(_Line(block, sha256)))
        # A leading newline too: after a line that a crash cut off, the next one must start afresh.
        with self._lock:
            self._file.write(f"\n{line}\n".encode())
            self.blocks[block] = sha256

    def close(self) -> None:
        self._file.close()


def record_path(cache: Path, name: str) -> Path:
    return cache / "shared" / f"{name}.json"


def write_record(cache: Path, name: str, shelved: Shelved) -> None:
    path = record_path(cache, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(path, to_json(shelved))
    records = sorted(path.parent.glob("*.json"), key=lambda found: found.stat().st_mtime, reverse=True)
    for old in records[_MOST_RECORDS:]:
        old.unlink(missing_ok=True)


def read_record(cache: Path, name: str) -> Shelved | None:
    try:
        return from_json(Shelved, read_json(record_path(cache, name)))
    except WireError:
        return None


class Missing(Exception):
    """This node does not have the block (any more)."""


@dataclass
class _Opened:
    """A content that was asked for."""

    shelved: Shelved
    row: Row
    journal: int = 0
    """The inode of the journal: another one means another download."""
    journal_read: int = 0
    arrived: int = 0


class Shelves:
    """Blocks by the name of their content; called from any thread."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, name: str, block: int) -> tuple[int, Iterator[bytes]]:
        """The size of a block, and its bytes in pieces; raises Missing, possibly while they are read."""
        opened = self._open(name)
        if not 0 <= block < opened.row.count:
            raise Missing(f"there is no block {block}")
        for _ in range(_MOVED_TRIES):
            folder = self._folder(opened, block)
            if folder is not None:
                pieces = _pieces(folder, opened.row, block)
                with suppress(FileNotFoundError):
                    return opened.row.length(block), chain([next(pieces)], pieces)
            time.sleep(_MOVED_S)
        with self._lock:
            self._opened.pop(name, None)
        raise Missing(f"block {block} is not here any more")

    def _open(self, name: str) -> _Opened:
        with self._lock:
            found = self._opened.get(name)
            if found is None:
                shelved = read_record(self._cache, name)
                if shelved is None:
                    raise Missing("this content is not here")
                row = Row([FileEntry(path, size) for path, size in shelved.files])
                found = self._opened[name] = _Opened(shelved, row)
            self._opened.move_to_end(name)
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
            return found

    def _folder(self, opened: _Opened, block: int) -> Path | None:
        """Where the block lies now; Missing where it has not arrived."""
        key = opened.shelved.key
        partial = self._cache / "trees" / ".partial" / key
        digest = read_source(self._cache, key)
        if digest is not None and (tree := self._cache / "trees" / digest / "data").is_dir():
            return tree
        if not partial.is_dir():
            return None
        self._follow(opened, partial / JOURNAL, block)
        if not opened.arrived >> block & 1:
            raise Missing(f"block {block} has not arrived yet")
        return partial / "data"

    def _follow(self, opened: _Opened, journal: Path, block: int) -> None:
        with self._lock, suppress(FileNotFoundError), journal.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != opened.journal:
                opened.journal, opened.journal_read, opened.arrived = inode, 0, 0
            if opened.arrived >> block & 1:
                return
            file.seek(opened.journal_read)
            raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]
            opened.journal_read += len(whole)
            for line in _lines(whole):
                if 0 <= line.block < opened.row.count:
                    opened.arrived |= 1 << line.block


def whole_hashes(cache: Path, name: str, count: int) -> Mapping[int, str] | None:
    """The hashes of a content that is whole here; None where they are not known."""
    shelved = read_record(cache, name)
    if shelved is None or len(shelved.hashes) != count:
        return None
    return dict(enumerate(shelved.hashes))


def _pieces(folder: Path, row: Row, block: int) -> Iterator[bytes]:
    # Opened once: if the content is moved to its final name meanwhile, the open folder still leads to it.
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in row.parts(block):
            yield from _read_part(held, part, block)
    finally:
        os.close(held)


def _read_part(folder: int, part: Part, block: int) -> Iterator[bytes]:
    descriptor = os.open(stored_path(part.entry), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        end = part.offset + part.length
        for offset in range(part.offset, end, PIECE_BYTES):
            length = min(PIECE_BYTES, end - offset)
            data = os.pread(descriptor, length, offset)
            if len(data) != length:
                raise Missing(f"block {block} is shorter here than it should be")
            yield data
    finally:
        os.close(descriptor)


def _lines(raw: bytes) -> Iterator[_Line]:
    for line in raw.split(b"\n"):
        try:
            yield from_json(_Line, json.loads(line))
        except ValueError:
            # An empty line, or one that a crash cut off.
            continue
