"""Growing files of attempts, addressed by offset: written once, in order, durable before they are acknowledged."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from muster.defaults import PUBLISH_S
from muster.host.files import read_json, safe_path, write_all, write_json
from muster.store.backend import Store
from muster.store.keyring import KeyRing
from muster.store.pieces import pieces_of
from muster.store.sealed import SealedStreams
from muster.wire.node.agents import Chunk

_PUBLISHED = "published.json"
"""How much of each stream a remote workspace store has."""
_ALWAYS_WORTH_BYTES = 4 << 20
_LOCKS = 64


class Streams:
    """Local files below one folder: `RUN/attempts/N/STREAM`. A file's size is the length that is known."""

    def __init__(self, root: Path, ring: KeyRing | None = None) -> None:
        self._root = root
        self._sealed = SealedStreams(ring, root) if ring is not None else None
        self._publishing = threading.Lock()
        self._appending = [threading.Lock() for _ in range(_LOCKS)]
        """Each guards the streams whose names hash to it, from reading their lengths until the write is done."""

    def append(self, chunks: list[Chunk]) -> dict[tuple[str, int, str], int]:
        """Append the new part of each chunk; returns the durable length of every stream named."""
        lengths: dict[tuple[str, int, str], int] = {}
        files: dict[tuple[str, int, str], int] = {}
        try:
            with self._alone({(chunk.run, chunk.attempt, chunk.stream) for chunk in chunks}):
                for chunk in chunks:
                    key = (chunk.run, chunk.attempt, chunk.stream)
                    if key not in files:
                        files[key] = self._open(*key)
                        lengths[key] = self._size(self.path(*key), os.fstat(files[key]).st_size)
                    known = lengths[key]
                    if chunk.offset > known:
                        continue
                    fresh = memoryview(chunk.data)[known - chunk.offset :]
                    self._write(files[key], self.path(*key), fresh)
                    lengths[key] += len(fresh)
            # Another thread that finds the bytes there syncs them too before it answers: nobody has to wait for this.
            for descriptor in files.values():
                os.fdatasync(descriptor)
        finally:
            for descriptor in files.values():
                os.close(descriptor)
        return lengths

    @contextmanager
    def _alone(self, keys: set[tuple[str, int, str]]) -> Iterator[None]:
        """Lock out other deliveries of the same streams. Locks are taken in one order, so that there is no deadlock."""
        with ExitStack() as held:
            for index in sorted({hash(key) % _LOCKS for key in keys}):
                held.enter_context(self._appending[index])
            yield

    def path(self, run: str, attempt: int, stream: str) -> Path:
        return Path(self._place(run, attempt, stream))

    def _place(self, run: str, attempt: int, stream: str) -> str:
        # Plain text in one step, for speed: a thousand ranks mean a thousand of these for every look.
        return f"{self._root}/{safe_path(run)}/attempts/{attempt}/{safe_path(stream)}"

    def folder(self, run: str) -> Path:
        """The folder of all streams of a run."""
        return self._root / safe_path(run)

    def length(self, run: str, attempt: int, stream: str) -> int:
        path = self.path(run, attempt, stream)
        try:
            return self._size(path, path.stat().st_size)
        except FileNotFoundError:
            return 0

    def read(self, run: str, attempt: int, stream: str, offset: int, length: int) -> bytes:
        place = self._place(run, attempt, stream)
        if self._sealed is not None and self._sealed.length(Path(place)) is not None:
            return self._sealed.read(Path(place), offset, length)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            # A read returns less than requested only at the end of the file, or for a very large request.
            data = os.pread(descriptor, length, offset)
            while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
                data += more
            return data
        finally:
            os.close(descriptor)

    def tail(self, run: str, attempt: int, stream: str, length: int) -> str:
        size = self.length(run, attempt, stream)
        return self.read(run, attempt, stream, max(0, size - length), length).decode(errors="replace")

    def names(self, run: str, attempt: int) -> Iterator[tuple[str, int]]:
        """Streams of an attempt with their lengths: output and logs."""
        for stream, length, _ in self.written(run, attempt):
            yield stream, length

    def written(self, run: str, attempt: int) -> Iterator[tuple[str, int, float]]:
        """The same with the times at which they were last written."""
        base = self._root / safe_path(run) / "attempts" / str(attempt)
        for folder in ("user_logs", "events"):
            try:
                entries = sorted(os.scandir(base / folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            for entry in entries:
                status = entry.stat()
                yield f"{folder}/{entry.name}", self._size(entry.path, status.st_size), status.st_mtime

    def open(self, location: str) -> BinaryIO | None:
        """The local file of an object's name, where the name is a stream's."""
        path = self._root / safe_path(location).removeprefix("runs/")
        if not path.is_file() or (self._sealed is not None and self._sealed.is_object(path)):
            return None
        return self._open_plain(path)

    def rewrap(self) -> int:
        """Wrap the keys of all streams in the ring's first key; returns how many needed that."""
        paths = [path for path in self._root.glob("*/attempts/*/*/*") if path.is_file()]
        return sum(self._sealed.rewrap(path) for path in paths) if self._sealed is not None else 0

    def _open_plain(self, path: Path) -> BinaryIO:
        if self._sealed is not None and self._sealed.length(path) is not None:
            return self._sealed.open(path)
        return path.open("rb")

    def _size(self, path: Path | str, stored: int) -> int:
        sealed = self._sealed.length(Path(path)) if self._sealed is not None and stored else None
        return stored if sealed is None else sealed

    def _write(self, descriptor: int, path: Path, data: memoryview) -> None:
        """Append; a stream that began plain stays plain."""
        if self._sealed is not None and self._sealed.takes(descriptor, path):
            self._sealed.append(descriptor, path, data)
        else:
            write_all(descriptor, data)

    def publish(self, store: Store, run: str, attempt: int, whole: bool = True) -> int:
        """Copy an attempt's output to a remote store; a local store has it already.

        A stream of unchanged size is not copied again; without `whole` a growing one is copied when it is worth it.
        Returns how many streams were copied.
        """
        if store.local_root is not None:
            return 0
        count = 0
        with self._publishing:
            base = self._root / safe_path(run) / "attempts" / str(attempt)
            there: dict[str, int] = read_json(base / _PUBLISHED) or {}
            for stream, size in self.names(run, attempt):
                path = self.path(run, attempt, stream)
                quiet = time.time() - path.stat().st_mtime > PUBLISH_S
                if size == there.get(stream) or not (whole or quiet or _worth_it(size, there.get(stream, 0))):
                    continue
                with self._open_plain(path) as file:
                    there[stream] = store.put(f"runs/{run}/attempts/{attempt}/{stream}", pieces_of(file, size))
                write_json(base / _PUBLISHED, there)
                count += 1
        return count

    def finish(self, run: str, attempt: int) -> None:
        """An attempt is over: from now on truncation of its encrypted streams is noticed."""
        if self._sealed is not None:
            for stream, _ in self.names(run, attempt):
                with self._alone({(run, attempt, stream)}):
                    self._sealed.finish(self.path(run, attempt, stream))

    def remove(self, run: str) -> None:
        """Forget a run's streams, so that none is copied to the store again."""
        with self._publishing:
            shutil.rmtree(self._root / safe_path(run), ignore_errors=True)

    def attempts(self) -> Iterator[tuple[str, int]]:
        """Every attempt that has streams here."""
        for folder in sorted(self._root.glob("*/attempts/*")):
            if folder.name.isdigit():
                yield folder.parts[-3], int(folder.name)

    def _open(self, run: str, attempt: int, stream: str) -> int:
        path = self.path(run, attempt, stream)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)


def _worth_it(size: int, there: int) -> bool:
    """An object in a remote store is written as a whole, so a long stream is copied when it has grown by a quarter."""
    return size <= _ALWAYS_WORTH_BYTES or size >= there * 1.25
