"""Growing files of attempts, addressed by offset: written once, in order, durable before acknowledged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from muster.protocol import Chunk
from muster.store.backend import Store, pieces_of, safe_name


class Streams:
    """Local files below one folder: `RUN/attempts/N/STREAM`. Their size is how much is known."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, chunks: list[Chunk]) -> dict[tuple[str, int, str], int]:
        """Add what is new of each chunk; returns the durable length of every stream named."""
        lengths: dict[tuple[str, int, str], int] = {}
        files: dict[tuple[str, int, str], int] = {}
        try:
            for chunk in chunks:
                key = (chunk.run, chunk.attempt, chunk.stream)
                if key not in files:
                    files[key] = self._open(*key)
                    lengths[key] = os.fstat(files[key]).st_size
                known = lengths[key]
                if chunk.offset > known:
                    continue
                fresh = memoryview(chunk.data)[known - chunk.offset :]
                while fresh:
                    written = os.write(files[key], fresh)
                    lengths[key] += written
                    fresh = fresh[written:]
            for descriptor in files.values():
                os.fdatasync(descriptor)
        finally:
            for descriptor in files.values():
                os.close(descriptor)
        return lengths

    def path(self, run: str, attempt: int, stream: str) -> Path:
        return self._root / safe_name(run) / "attempts" / str(attempt) / safe_name(stream)

    def length(self, run: str, attempt: int, stream: str) -> int:
        try:
            return self.path(run, attempt, stream).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, run: str, attempt: int, stream: str, offset: int, length: int) -> bytes:
        try:
            with self.path(run, attempt, stream).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except FileNotFoundError:
            return b""

    def tail(self, run: str, attempt: int, stream: str, length: int) -> str:
        size = self.length(run, attempt, stream)
        return self.read(run, attempt, stream, max(0, size - length), length).decode(errors="replace")

    def names(self, run: str, attempt: int) -> Iterator[tuple[str, int]]:
        """Streams of an attempt with their lengths: what is printed and what is logged."""
        base = self._root / safe_name(run) / "attempts" / str(attempt)
        for folder in ("user_logs", "events"):
            try:
                entries = sorted(os.scandir(base / folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            for entry in entries:
                yield f"{folder}/{entry.name}", entry.stat().st_size

    def find(self, location: str) -> Path | None:
        """The local file behind a name of the workspace store, where it is a stream's."""
        path = self._root / safe_name(location).removeprefix("runs/")
        return path if path.is_file() else None

    def publish(self, store: Store, run: str, attempt: int) -> None:
        """Copy what an attempt printed to a store that lies elsewhere; a local store has it already."""
        if store.local_root is not None:
            return
        for stream, _size in self.names(run, attempt):
            with self.path(run, attempt, stream).open("rb") as file:
                store.put(f"runs/{run}/attempts/{attempt}/{stream}", pieces_of(file))

    def _open(self, run: str, attempt: int, stream: str) -> int:
        path = self.path(run, attempt, stream)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
