"""Fetching a source's files: concurrent ranged reads, bounded memory, resumable, hashed on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.host.hashing import sha256_of
from muster.host.http import following
from muster.storage.connectors.base import BLOCK_BYTES, Source, SourceChanged, Streaming, TransferError, without_ranges
from muster.storage.staging.model import Progress, stored_path
from muster.wire.codec import OMIT, from_json, to_json
from muster.wire.data.access import FileEntry
from muster.wire.message import wire

FOR_BLOCKS = 8
FOR_SMALL_FILES = 16
"""Each waits for its answer most of the time; with fewer the storage waits for the next request."""
SMALL_BYTES = 1 << 20


def fetch(
    source: Source, entries: list[FileEntry], folder: Path, journal: Journal, progress: Progress
) -> dict[str, str]:
    """Put every entry below the folder; returns their hashes. Continues where an earlier call was interrupted."""
    work = _Work(source, folder, journal, progress)
    for parent in sorted({str((folder / stored_path(entry)).parent) for entry in entries}):
        Path(parent).mkdir(parents=True, exist_ok=True)
    work.plan(entries)
    work.run(connections([_size(task) for task in work.tasks]))
    return work.hashes


def connections(sizes: list[int]) -> int:
    """How many requests of these sizes are made at the same time."""
    small = sum(sizes) < SMALL_BYTES * len(sizes)
    return min(FOR_SMALL_FILES if small else FOR_BLOCKS, max(1, len(sizes)))


@wire
class _Line:
    """A finished file with its hash, or a finished block of a large one; neither: the file starts over."""

    path: str
    sha256: str | None = field(default=None, metadata=OMIT)
    changed_ns: tuple[int, int] | None = field(default=None, metadata=OMIT)
    """A finished file's mtime and ctime, which reveal a later change."""
    block: int | None = field(default=None, metadata=OMIT)
    crc32: int | None = field(default=None, metadata=OMIT)


class Journal:
    """What is done, one line each: finished files with their hash, finished blocks of large ones."""

    def __init__(self, path: Path) -> None:
        self.files: dict[str, tuple[str, tuple[int, int] | None]] = {}
        self.blocks: dict[str, dict[int, int]] = {}
        """By file: its finished blocks with their checksums."""
        self._lock = threading.Lock()
        for line in _whole_lines(path):
            if line.sha256 is not None:
                self.files[line.path] = line.sha256, line.changed_ns
            elif line.block is None:
                self.files.pop(line.path, None)
                self.blocks.pop(line.path, None)
            elif line.crc32 is not None:
                self.blocks.setdefault(line.path, {})[line.block] = line.crc32
        self._file = path.open("ab", buffering=0)

    def known(self, entry: FileEntry, path: Path) -> str | None:
        """The hash of a file that an earlier call finished, if it is unchanged."""
        sha256, changed_ns = self.files.get(entry.path, (None, None))
        try:
            status = path.lstat()
            if sha256 is None or status.st_size != entry.size:
                return None
            return sha256 if _changed_ns(status) == changed_ns or sha256_of(path) == sha256 else None
        except OSError:
            return None

    def finished(self, entry: FileEntry, path: Path, sha256: str) -> None:
        self._write(_Line(entry.path, sha256, _changed_ns(path.lstat())))

    def block(self, path: str, index: int, crc32: int) -> None:
        self._write(_Line(path, block=index, crc32=crc32))

    def forget(self, path: str) -> None:
        """The file is wrong: the next call must not continue from it."""
        self._write(_Line(path))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: _Line) -> None:
        # A leading newline too: after a line that a crash cut off, the next one must start afresh.
        with self._lock:
            self._file.write(f"\n{json.dumps(to_json(line))}\n".encode())


@dataclass
class _Large:
    """A file that is fetched in blocks, and hashed in order by the thread that finishes the next one."""

    entry: FileEntry
    path: Path
    descriptor: int
    done: set[int] = field(default_factory=set)
    resumed: dict[int, int] = field(default_factory=dict)
    """Blocks that an earlier call brought, with their checksums: they must be unchanged."""
    next_hashed: int = 0
    hashing: bool = False
    digest: Any = field(default_factory=hashlib.sha256)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        return -(-self.entry.size // BLOCK_BYTES)

    def span(self, index: int) -> tuple[int, int]:
        offset = index * BLOCK_BYTES
        return offset, min(BLOCK_BYTES, self.entry.size - offset)


@dataclass(frozen=True)
class _Whole:
    """A large file of a server without ranges: it comes in one piece, and starts over after an interruption."""

    entry: FileEntry


_Task = FileEntry | _Whole | tuple[_Large, int]


def _size(task: _Task) -> int:
    if isinstance(task, _Whole):
        return 0
    return task.size if isinstance(task, FileEntry) else task[0].span(task[1])[1]


class _Work:
    """One call of fetch."""

    def __init__(self, source: Source, folder: Path, journal: Journal, progress: Progress) -> None:
        self._source = source
        self._folder = folder
        self._journal = journal
        self._progress = progress
        self._broken: list[BaseException] = []
        self._opened: list[_Large] = []
        self._streaming: Streaming | None = None
        self.tasks: deque[_Task] = deque()
        self.hashes: dict[str, str] = {}

    def plan(self, entries: Iterable[FileEntry]) -> None:
        entries = list(entries)
        self._streaming = without_ranges(self._source, entries)
        for entry in entries:
            path = self._folder / stored_path(entry)
            if (known := self._journal.known(entry, path)) is not None:
                self.hashes[entry.path] = known
                self._progress.add(entry.size, 1, resumed=True)
            elif entry.size <= BLOCK_BYTES:
                self.tasks.append(entry)
            elif self._streaming is not None:
                self.tasks.append(_Whole(entry))
            else:
                self._plan_large(entry, path)

    def _plan_large(self, entry: FileEntry, path: Path) -> None:
        done = self._journal.blocks.get(entry.path, {}) if _has_size(path, entry.size) else {}
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            large = _Large(entry, path, descriptor)
            self._opened.append(large)
            # Space is allocated now, so that a full disk shows before the work is done.
            os.posix_fallocate(descriptor, 0, entry.size)
        except OSError as error:
            raise local_trouble(error, path) from error
        large.resumed = {index: crc32 for index, crc32 in done.items() if index < large.count}
        large.done = set(large.resumed)
        for index in range(large.count):
            if index in large.done:
                self._progress.add(large.span(index)[1], resumed=True)
            else:
                self.tasks.append((large, index))
        if len(large.done) == large.count:
            self._hash(large, -1, memoryview(b""))

    def run(self, threads: int) -> None:
        workers = [threading.Thread(target=self._work, name=f"fetch-{n}", daemon=True) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for large in self._opened:
            os.close(large.descriptor)
        if self._broken:
            raise self._broken[0]

    def _work(self) -> None:
        buffer, following.filled = bytearray(0), self._progress.arriving
        try:
            while not self._broken:
                try:
                    task = self.tasks.popleft()
                except IndexError:
                    return
                size = _size(task)
                if len(buffer) < size:
                    buffer = bytearray(max(size, 1 << 16) if size < BLOCK_BYTES // 4 else BLOCK_BYTES)
                view = memoryview(buffer)[:size]
                if isinstance(task, FileEntry):
                    self._small(task, view)
                elif isinstance(task, _Whole):
                    self._whole(task.entry)
                else:
                    self._block(*task, view)
        except BaseException as error:
            self._broken.append(error)

    def _small(self, entry: FileEntry, view: memoryview) -> None:
        self._source.read(entry, 0, view)
        sha256 = hashlib.sha256(view).hexdigest()
        compare(entry, sha256)
        path = self._folder / stored_path(entry)
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            try:
                write_at(descriptor, view, 0)
            finally:
                os.close(descriptor)
            self._journal.finished(entry, path, sha256)
        except OSError as error:
            raise local_trouble(error, path) from error
        self.hashes[entry.path] = sha256
        self._progress.add(entry.size, 1)

    def _whole(self, entry: FileEntry) -> None:
        assert self._streaming is not None
        path, digest, count = self._folder / stored_path(entry), hashlib.sha256(), 0
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            try:
                for piece in self._streaming.whole(entry):
                    write_at(descriptor, memoryview(piece), count)
                    digest.update(piece)
                    count += len(piece)
                    self._progress.add(len(piece))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise local_trouble(error, path) from error
        if count != entry.size:
            raise SourceChanged(stored_path(entry))
        compare(entry, digest.hexdigest())
        self._journal.finished(entry, path, digest.hexdigest())
        self.hashes[entry.path] = digest.hexdigest()
        self._progress.add(0, 1)

    def _block(self, large: _Large, index: int, view: memoryview) -> None:
        offset, _ = large.span(index)
        self._source.read(large.entry, offset, view)
        try:
            write_at(large.descriptor, view, offset)
            self._journal.block(large.entry.path, index, zlib.crc32(view))
        except OSError as error:
            raise local_trouble(error, large.path) from error
        self._progress.add(len(view))
        self._hash(large, index, view)

    def _hash(self, large: _Large, index: int, view: memoryview) -> None:
        """Continue hashing as far as blocks have arrived; one thread at a time, while the others fetch."""
        with large.lock:
            if index >= 0:
                large.done.add(index)
            if large.hashing:
                return
            large.hashing = True
        while True:
            with large.lock:
                block = large.next_hashed
                if block not in large.done:
                    large.hashing = False
                    break
            offset, size = large.span(block)
            data = view if block == index else os.pread(large.descriptor, size, offset)
            if block in large.resumed and zlib.crc32(data) != large.resumed[block]:
                self._journal.forget(large.entry.path)
                text = f"{stored_path(large.entry)} was changed on this machine before all of it had arrived"
                raise Damaged(large.entry, "", text)
            large.digest.update(data)
            large.next_hashed += 1
        if large.next_hashed == large.count and large.entry.path not in self.hashes:
            sha256 = large.digest.hexdigest()
            if large.entry.sha256 not in (None, sha256):
                self._journal.forget(large.entry.path)
            compare(large.entry, sha256)
            os.fchmod(large.descriptor, 0o444)
            self._journal.finished(large.entry, large.path, sha256)
            self.hashes[large.entry.path] = sha256
            self._progress.add(0, 1)


class Damaged(TransferError):
    """A file is not what was announced, or has changed since it arrived."""

    def __init__(self, entry: FileEntry, sha256: str, text: str = "") -> None:
        announced = f"{stored_path(entry)} arrived with the sha256 {sha256}, and {entry.sha256} was announced"
        super().__init__("data_unavailable", text or announced)
        self.what = stored_path(entry)


def compare(entry: FileEntry, sha256: str) -> None:
    """Refuse a file whose hash is not the announced one."""
    if entry.sha256 is not None and entry.sha256 != sha256:
        raise Damaged(entry, sha256)


def write_at(descriptor: int, view: memoryview, offset: int) -> None:
    written = 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], offset + written)


def _changed_ns(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.lstat().st_size == size
    except OSError:
        return False


def local_trouble(error: OSError, path: Path) -> TransferError:
    """The transfer's error for a local file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransferError("disk_full", f"the disk of {path.parent} is full. Free some space there and try again.")
    return TransferError("platform", f"{path}: {error.strerror}")


def _whole_lines(path: Path) -> Iterator[_Line]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    for line in raw.split(b"\n"):
        try:
            yield from_json(_Line, json.loads(line))
        except ValueError:
            # An empty line, or one that a crash cut off.
            continue
