"""The files of a transfer, and its progress. Standard library only."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.host.files import is_safe_path
from muster.storage.connectors.base import ONE_FILE, TransferError
from muster.storage.staging.messages import ProgressReport
from muster.wire.data.access import FileEntry


class Unwanted(Exception):
    """Nobody waits for the transfer any more."""


def stored_path(entry: FileEntry) -> str:
    """Its path in the cache; a source that is one file has no path below itself."""
    return entry.path or ONE_FILE


@dataclass
class Progress:
    """Counts what is done; read by the thread that reports."""

    phase: str = ""
    total_bytes: int = 0
    total_files: int = 0
    done_bytes: int = 0
    done_files: int = 0
    resumed_bytes: int = 0
    peer_bytes: int = 0
    """Of the bytes that are done, those from other nodes."""
    nodes: int = 0
    """How many nodes they came from."""
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _arriving: dict[int, int] = field(default_factory=dict)
    """By thread: the bytes received of the part that it fetches."""

    def arriving(self, count: int) -> None:
        """Record how much of this thread's part has come; over a slow link a part takes long."""
        with self._lock:
            self._arriving[threading.get_ident()] = count

    def add(self, count: int, files: int = 0, resumed: bool = False, from_peer: bool = False) -> None:
        with self._lock:
            self._arriving.pop(threading.get_ident(), None)
            self.done_bytes += count
            self.done_files += files
            if resumed:
                self.resumed_bytes += count
            if from_peer:
                self.peer_bytes += count
        if self.stop.is_set():
            raise Unwanted

    def begin(self, phase: str) -> None:
        """Count from zero again, for the next phase."""
        with self._lock:
            self.phase = phase
            self.done_bytes = self.done_files = self.resumed_bytes = self.peer_bytes = 0
            self._arriving.clear()

    @property
    def here_bytes(self) -> int:
        """The bytes done, with those of unfinished parts."""
        with self._lock:
            return self.done_bytes + sum(self._arriving.values())

    def report(self) -> ProgressReport:
        return ProgressReport(
            self.phase,
            self.here_bytes,
            self.total_bytes,
            self.done_files,
            self.total_files,
            self.resumed_bytes,
            self.peer_bytes,
            self.nodes,
        )


def check_entries(entries: Iterable[FileEntry], where: str) -> list[FileEntry]:
    """The entries in order, if every path stays inside its folder and none is both a file and a folder."""
    entries = list(entries)
    if len(entries) == 1 and not entries[0].path:
        return entries
    found: dict[str, FileEntry] = {}
    for entry in entries:
        if not is_safe_path(entry.path):
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


def tree_digest(entries: Iterable[FileEntry]) -> str:
    """The hash that names a folder's content: every path, size and hash."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        digest.update(f"{entry.sha256} {entry.size} {stored_path(entry)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def listing_key(where: str, entries: Iterable[FileEntry]) -> str:
    """The hash that names a source's current content, without having read it."""
    lines = [[entry.path, entry.size, entry.etag, entry.sha256] for entry in entries]
    return hashlib.sha256(json.dumps([where, lines]).encode()).hexdigest()


def with_hashes(entries: Iterable[FileEntry], hashes: Mapping[str, str]) -> list[FileEntry]:
    return [replace(entry, sha256=hashes[entry.path]) for entry in entries]


def total_size(entries: Iterable[FileEntry]) -> int:
    return sum(entry.size for entry in entries)
