"""The order in which the bytes of a run's logs came: one index for all logs, so that one number is a cursor.

An entry says which log grew, from where, by how much, and when. It is written after the bytes themselves; missing
entries (after a crash, or for runs older than the index) are added from the lengths of the logs.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from muster.host.files import write_all
from muster.store.streams import Streams

PRINTED = "user_logs/"
"""The output of ranks is below this folder of an attempt."""

_ENTRY = struct.Struct("<IQQd")
_INDEX, _NAMES = "arrivals", "arrivals.names"
_REMEMBERED = 64

log = logging.getLogger("muster.store")


class Log(NamedTuple):
    """The output of one rank (or a build) in one attempt."""

    attempt: int
    stream: str


class Arrival(NamedTuple):
    """Bytes of a log that came together."""

    log: Log
    offset: int
    length: int
    at: float


@dataclass
class _Index:
    """One run's index in memory, so that it need not be read again."""

    inode: int = 0
    names: list[Log] = field(default_factory=list)
    numbers: dict[Log, int] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    count: int = 0
    synced: int = 0
    last_at: float = 0.0

    def add_name(self, name: Log) -> None:
        self.numbers[name] = len(self.names)
        self.names.append(name)
        self.lengths.append(0)

    def take(self, number: int, offset: int, length: int, at: float) -> bool:
        """Count an entry; returns whether it is a valid successor."""
        if number >= len(self.names) or length == 0 or offset != self.lengths[number]:
            return False
        self.lengths[number] += length
        self.count += 1
        self.last_at = at
        return True


class Arrivals:
    """The indexes of all runs; may be used from several threads."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Index] = OrderedDict()

    def record(self, run: str, lengths: Mapping[Log, int]) -> None:
        """Record the current lengths of logs. `catch_up` makes up for a failure: the bytes themselves are safe."""
        try:
            with self._lock:
                self._add(run, [(name, length, time.time()) for name, length in lengths.items()])
        except OSError as error:
            log.warning("the index of the logs of %s was not written: %s", run, error)

    def catch_up(self, run: str, attempts: Iterable[int]) -> None:
        """Record what the logs hold beyond the index, in the order in which they were last written."""
        found = [
            (Log(attempt, stream), length, at)
            for attempt in attempts
            for stream, length, at in self._streams.written(run, attempt)
            if stream.startswith(PRINTED)
        ]
        with self._lock:
            self._add(run, sorted(found, key=lambda item: item[2]))

    def count(self, run: str) -> int:
        """The number of durable entries: a power cut takes back none that a reader has seen."""
        with self._lock:
            index = self._index(run)
            count, is_safe = index.count, index.synced >= index.count
        if not is_safe:
            for name in (_NAMES, _INDEX):
                _sync(self._streams.folder(run) / name)
            index.synced = max(index.synced, count)
        return count

    def read(self, run: str, begin: int, end: int) -> list[Arrival]:
        """Entries from `begin` to before `end`, as far as there are any."""
        with self._lock:
            index = self._index(run)
        size = (min(end, index.count) - begin) * _ENTRY.size
        if size <= 0:
            return []
        with (self._streams.folder(run) / _INDEX).open("rb") as file:
            data = os.pread(file.fileno(), size, begin * _ENTRY.size)
        return [Arrival(index.names[number], *rest) for number, *rest in _ENTRY.iter_unpack(data)]

    def lengths(self, run: str) -> dict[Log, int]:
        """Every log that the index knows, with how much of it the entries cover."""
        with self._lock:
            index = self._index(run)
            return dict(zip(index.names, index.lengths, strict=True))

    def first_since(self, run: str, at: float) -> int:
        """The first entry that came at that time or later."""
        low, high = 0, self.count(run)
        while low < high:
            middle = (low + high) // 2
            if self.read(run, middle, middle + 1)[0].at < at:
                low = middle + 1
            else:
                high = middle
        return low

    def _add(self, run: str, found: Iterable[tuple[Log, int, float]]) -> None:
        index, folder = self._index(run), self._streams.folder(run)
        names, entries = b"", b""
        for name, length, at in found:
            known = index.lengths[index.numbers[name]] if name in index.numbers else 0
            if length <= known:
                continue
            if name not in index.numbers:
                index.add_name(name)
                names += json.dumps(name).encode() + b"\n"
            # A clock that is set back must not bring entries out of order.
            entry = (index.numbers[name], known, length - known, max(at, index.last_at))
            index.take(*entry)
            entries += _ENTRY.pack(*entry)
        if not entries:
            return
        try:
            _append(folder / _NAMES, names)
            index.inode = _append(folder / _INDEX, entries)
        except BaseException:
            self._known.pop(run, None)
            raise

    def _index(self, run: str) -> _Index:
        path = self._streams.folder(run) / _INDEX
        index = self._known.get(run)
        try:
            status = path.stat()
            is_current = index is not None and (index.inode, index.count * _ENTRY.size) == (
                status.st_ino,
                status.st_size,
            )
        except FileNotFoundError:
            is_current = False
        if index is None or not is_current:
            index = self._known[run] = _load(path.parent)
        self._known.move_to_end(run)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return index


def _load(folder: Path) -> _Index:
    """The index as it is on disk; an entry at its end that a crash left unfinished is cut off."""
    index = _Index()
    names, data = _content(folder / _NAMES), _content(folder / _INDEX)
    whole = 0
    for line in names.splitlines(keepends=True):
        try:
            attempt, stream = json.loads(line.removesuffix(b"\n") if line.endswith(b"\n") else b"")
            index.add_name(Log(int(attempt), str(stream)))
        except (ValueError, TypeError):
            break
        whole += len(line)
    if whole < len(names):
        os.truncate(folder / _NAMES, whole)
    usable = len(data) - len(data) % _ENTRY.size
    for entry in _ENTRY.iter_unpack(data[:usable]):
        if not index.take(*entry):
            break
    if index.count * _ENTRY.size < len(data):
        os.truncate(folder / _INDEX, index.count * _ENTRY.size)
    if data:
        index.inode = (folder / _INDEX).stat().st_ino
    return index


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _append(path: Path, data: bytes) -> int:
    """Append to a file; returns its inode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, data)
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
