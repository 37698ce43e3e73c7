"""Fetches files into a folder of this machine: all or nothing, continuing where an earlier try stopped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.client.transfer.access import batches
from muster.client.transfer.local import PARTIAL
from muster.client.transfer.plan import Copy
from muster.errors import Conflict, DiskFull, JobError
from muster.host.files import is_safe_path, remove_tree, write_json
from muster.host.locks import FileLock
from muster.storage.connectors.base import Source
from muster.storage.staging.download import Journal, fetch
from muster.storage.staging.model import Progress, stored_path
from muster.wire.text import size

Announce = Callable[[Sequence[str]], None]


def fetch_all(
    source: Source,
    where: str,
    copies: Sequence[Copy],
    target: Path,
    moved: Callable[[int], None],
    announce: Announce | None = None,
) -> None:
    """Fetch every file into the target. Until all have come, they lie apart, where a later try continues with them."""
    if not copies:
        return
    for copy in copies:
        if not is_safe_path(copy.name) or not is_safe_path(stored_path(copy.entry)):
            raise JobError(f"{where} has a file named {copy.name!r}, which would be written outside {target}")
    target.mkdir(parents=True, exist_ok=True)
    partial = target / f"{PARTIAL}{hashlib.sha256(f'{where} {target.absolute()}'.encode()).hexdigest()[:12]}"
    partial.mkdir(exist_ok=True)
    held = FileLock(partial / "lock", required=False).try_acquire()
    if held is None:
        raise Conflict(f"the same copy to {target} is under way already.", "Wait for its end, or end it.")
    with held:
        _drop_outdated(partial, copies)
        try:
            _check_room(partial, copies)
        except DiskFull:
            if not (partial / "data").exists():
                remove_tree(partial)
            raise
        journal, counted = Journal(partial / "journal.jsonl"), _Counted(moved)
        try:
            for batch in batches(copies):
                if announce is not None:
                    announce([copy.entry.path for copy in batch])
                fetch(source, [copy.entry for copy in batch], partial / "data", journal, counted)
        except BaseException:
            # Threads that still fetch end with their next piece.
            counted.stop.set()
            raise
        finally:
            journal.close()
        _put_in_place(partial / "data", copies, target)
        remove_tree(partial)


class _Counted(Progress):
    """Progress that is passed on to a callback."""

    def __init__(self, moved: Callable[[int], None]) -> None:
        super().__init__()
        self.moved = moved
        self._told: dict[int, int] = {}
        """By thread: the bytes that it has counted of the part under way."""

    def arriving(self, count: int) -> None:
        super().arriving(count)
        thread = threading.get_ident()
        more = count - self._told.get(thread, 0)
        # A part that is requested again is not counted again.
        if more > 0:
            self._told[thread] = count
            self.moved(more)

    def add(self, count: int, files: int = 0, resumed: bool = False, from_peer: bool = False) -> None:
        super().add(count, files, resumed, from_peer)
        if count > (told := self._told.pop(threading.get_ident(), 0)):
            self.moved(count - told)


def _drop_outdated(partial: Path, copies: Sequence[Copy]) -> None:
    """Start over if the files have changed since an earlier try."""
    now = {copy.entry.path: [copy.entry.size, copy.entry.etag, copy.entry.sha256] for copy in copies}
    listing = partial / "listing.json"
    try:
        before = json.loads(listing.read_text())
    except (OSError, ValueError):
        before = None
    if before is None or any(path in before and before[path] != facts for path, facts in now.items()):
        before = {}
        for path in partial.iterdir():
            if path.name != "lock":
                remove_tree(path) if path.is_dir() else path.unlink()
    write_json(listing, {**before, **now})


def _check_room(partial: Path, copies: Sequence[Copy]) -> None:
    begun = sum(path.stat().st_size for path in (partial / "data").rglob("*") if path.is_file())
    needed, free = sum(copy.entry.size for copy in copies) - begun, shutil.disk_usage(partial).free
    if needed > free:
        raise DiskFull(
            f"{size(needed)} are to come, and the disk of {partial.parent} has {size(free)} free.",
            "Free some space there, or choose a target on another disk.",
        )


def _put_in_place(data: Path, copies: Sequence[Copy], target: Path) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    for copy in copies:
        path = target / copy.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fetched = data / stored_path(copy.entry)
        fetched.chmod(0o666 & ~mask)
        fetched.replace(path)
