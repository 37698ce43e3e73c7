"""What is moved and what can go wrong. Standard library only."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

BLOCK_BYTES = 8 << 20
ONE_FILE = "file"


class TransferError(Exception):
    """A transfer that failed; the code is one of the verdict's. What is final will not pass when it is tried again."""

    def __init__(self, code: str, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.final = final


class SourceChanged(TransferError):
    """What is read is not what was listed."""

    def __init__(self, what: str) -> None:
        super().__init__("data_unavailable", f"{what} changed while it was being read")


class AccessRefused(TransferError):
    """The storage did not accept the grant; where a fresh one does not help, nothing will."""

    def __init__(self, message: str) -> None:
        super().__init__("data_unavailable", message, final=True)


class Unwanted(Exception):
    """Nobody waits for the transfer any more."""


@dataclass(frozen=True)
class Entry:
    """One file of a source: its path below it, its size, and what pins its content."""

    path: str
    size: int
    version: str = ""
    """An ETag or a time of change: differs when the content does."""
    sha256: str | None = None

    @property
    def stored(self) -> str:
        """Its path in the cache; a source that is one file has no path below itself."""
        return self.path or ONE_FILE


class Source(Protocol):
    """Where bytes come from; used by several threads at once."""

    def listing(self) -> list[Entry]:
        """Every file, or the one file, that the address names."""
        ...

    def read(self, entry: Entry, offset: int, view: memoryview) -> None:
        """Fill the view with the entry's bytes from the offset on."""
        ...


class Sink(Protocol):
    """Where bytes go; used by several threads at once."""

    def known(self, name: str) -> tuple[int, str | None] | None:
        """Size and hash of what is there by that name; None when nothing is."""
        ...

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        """Write a file whole or not at all."""
        ...

    def move(self, name: str, new_name: str) -> None:
        """Give what is there another name, in the place of what bears it."""
        ...

    def remove(self, name: str) -> None:
        """Remove what is there by that name, if anything is."""
        ...


@dataclass
class Progress:
    """Counts what is done; read by the thread that reports."""

    phase: str = ""
    """What is being done, where that is not what was asked first."""
    total_bytes: int = 0
    total_files: int = 0
    done_bytes: int = 0
    done_files: int = 0
    resumed_bytes: int = 0
    """What an earlier try had done already."""
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, count: int, files: int = 0, resumed: bool = False) -> None:
        with self._lock:
            self.done_bytes += count
            self.done_files += files
            if resumed:
                self.resumed_bytes += count
        if self.stop.is_set():
            raise Unwanted

    def begin(self, phase: str) -> None:
        """Count from nothing again, for the next part."""
        with self._lock:
            self.phase = phase
            self.done_bytes = self.done_files = self.resumed_bytes = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "done_bytes": self.done_bytes,
            "total_bytes": self.total_bytes,
            "done_files": self.done_files,
            "total_files": self.total_files,
            "resumed_bytes": self.resumed_bytes,
        }


def check_entries(entries: Iterable[Entry], where: str) -> list[Entry]:
    """The entries in order, if every path stays inside its folder and none is both a file and a folder."""
    entries = list(entries)
    if len(entries) == 1 and not entries[0].path:
        return entries
    found: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.path.split("/")
        if not entry.path or any(part in ("", ".", "..") for part in parts) or "\0" in entry.path:
            raise TransferError(
                "bad_input", f"{where} has a file named {entry.path!r}, which would leave the folder it is put in"
            )
        found[entry.path] = entry
    folders = {path[:index] for path in found for index, letter in enumerate(path) if letter == "/"}
    for path in folders & found.keys():
        # Stores with folders of their own list them as empty objects.
        if found[path].size:
            raise TransferError("bad_input", f"{where} has both a file {path!r} and files below it; rename one of them")
        del found[path]
    return [found[path] for path in sorted(found)]


def tree_digest(entries: Iterable[Entry]) -> str:
    """The hash that names a folder's content: every path, size and hash."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        digest.update(f"{entry.sha256} {entry.size} {entry.stored}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def listing_key(where: str, entries: Iterable[Entry]) -> str:
    """The hash that names what a source holds right now, without having read it."""
    lines = [[entry.path, entry.size, entry.version, entry.sha256] for entry in entries]
    return hashlib.sha256(json.dumps([where, lines]).encode()).hexdigest()


def with_hashes(entries: Iterable[Entry], hashes: Mapping[str, str]) -> list[Entry]:
    return [replace(entry, sha256=hashes[entry.path]) for entry in entries]


def entries_to_json(entries: Iterable[Entry]) -> list[list[Any]]:
    return [[entry.path, entry.size, entry.version, entry.sha256] for entry in entries]


def entries_from_json(data: Iterable[Iterable[Any]]) -> list[Entry]:
    return [Entry(*item) for item in data]
