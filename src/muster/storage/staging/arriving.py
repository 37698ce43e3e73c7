"""An input whose files become visible one by one, while the job reads those that are there. Standard library only.

FOLDER/               what the job sees; a file appears when it is whole and verified
FOLDER/.muster.json   what will come, and where the job says what it needs first (`wire.data.arriving`)
FOLDER/.muster.failed why no more comes, if so
FOLDER/.muster.lock   held by the process that brings them: free means that none does
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from muster.host.files import remove_tree, write_file, write_json
from muster.host.locks import FileLock
from muster.storage.connectors.base import Source, TransferError
from muster.storage.staging.cache import Cache, Held
from muster.storage.staging.model import Progress, Unwanted, stored_path, total_size
from muster.storage.staging.stage import Together, stage
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import FileEntry
from muster.wire.data.arriving import FAILED, INDEX_ENDING, LIST, LOCK, Coming, Wish

_AT_ONCE = 3
"""Files; each has several requests under way."""
_LEAST_SHARED_BYTES = 1 << 20
_LOOK_S = 0.1
_WISHES_BYTES = 4 << 20
_FOLDERS = "arriving"


class Arrival:
    """One input on its way."""

    def __init__(
        self,
        source: Source,
        where: str,
        what: str,
        entries: list[FileEntry],
        cache: Cache,
        wishes: Path,
        progress: Progress,
        together: Together | None,
    ) -> None:
        self._source, self._where, self._what = source, where, what
        self._cache, self._wishes, self._progress = cache, wishes, progress
        self._together = replace(together, least_bytes=_LEAST_SHARED_BYTES) if together else None
        self._entries = {stored_path(entry): entry for entry in entries}
        self._left = deque(sorted(self._entries))
        self._wanted: deque[str] = deque()
        self._read = 0
        self._lock = threading.Lock()
        self._held: list[Held] = []
        self._parts: dict[str, Progress] = {}
        self._failed: TransferError | None = None
        self._done_bytes = self._peer_bytes = 0
        if total_size(entries) > cache.limit_bytes:
            # Refused before a byte is moved: nothing of it may be removed while the job runs.
            cache.admit("arriving", total_size(entries), what)
        root = cache.root / _FOLDERS
        root.mkdir(mode=0o700, exist_ok=True)
        _sweep(root)
        self.folder = root / secrets.token_hex(8)
        self.folder.mkdir(mode=0o755)
        self._alive = FileLock(self.folder / LOCK).acquire()
        coming = Coming(tuple((path, entry.size) for path, entry in self._entries.items()), str(wishes))
        write_json(self.folder / LIST, to_json(coming))
        for name in (LIST, LOCK):
            (self.folder / name).chmod(0o644)
        progress.total_bytes, progress.total_files = total_size(entries), len(entries)

    def begin(self) -> None:
        """Bring what a job needs before anything else: every index, and the first of the other files."""
        first = [path for path in self._left if path.endswith(INDEX_ENDING)]
        first += [path for path in self._left if not path.endswith(INDEX_ENDING)][:1]
        for path in first:
            self._left.remove(path)
        self._bring(deque(first))
        if self._failed:
            raise self._failed

    def go_on(self) -> TransferError | None:
        """Bring the rest, with requested files first; returns the error, if it failed."""
        self._bring(self._left)
        return self._failed

    def close(self) -> None:
        for held in self._held:
            held.release()
        remove_tree(self.folder)
        self._alive.release()

    def _bring(self, queue: deque[str]) -> None:
        watching = threading.Thread(target=self._watch, args=(queue,), daemon=True)
        workers = [threading.Thread(target=self._work, args=(queue,), daemon=True) for _ in range(_AT_ONCE)]
        for thread in (watching, *workers):
            thread.start()
        for thread in workers:
            thread.join()

    def _watch(self, queue: deque[str]) -> None:
        """Count what has arrived, for those who follow the job."""
        while queue or self._parts:
            self._count()
            time.sleep(_LOOK_S)

    def _count(self) -> None:
        parts = list(self._parts.values())
        whole = self._progress
        whole.done_bytes = self._done_bytes + sum(part.here_bytes for part in parts)
        whole.peer_bytes = self._peer_bytes + sum(part.peer_bytes for part in parts)
        whole.nodes = max([whole.nodes, *(part.nodes for part in parts)])

    def _work(self, queue: deque[str]) -> None:
        while not self._failed and not self._progress.stop.is_set():
            with self._lock:
                path = self._next(queue)
                if path is None:
                    return
                part = self._parts[path] = Progress(stop=self._progress.stop)
            try:
                self._one(path, part)
            except Unwanted:
                return
            except TransferError as error:
                self._fail(error)
            except Exception as error:
                # Whatever it is, a job waits for the file.
                self._fail(TransferError("platform", f"{self._what}: {error}"))
            finally:
                with self._lock:
                    self._finish(path, part)

    def _next(self, queue: deque[str]) -> str | None:
        """A requested file that is not under way yet, else the next by name."""
        self._wanted.extend(self._new_wishes())
        while self._wanted:
            path = self._wanted.popleft()
            if path in queue:
                queue.remove(path)
                return path
        return queue.popleft() if queue else None

    def _one(self, path: str, part: Progress) -> None:
        entry = self._entries[path]
        held, _ = stage(self._source, self._where, self._what, [entry], self._cache, part, self._together)
        self._held.append(held)
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(held.data / path, target)

    def _finish(self, path: str, part: Progress) -> None:
        del self._parts[path]
        self._done_bytes += part.done_bytes
        self._peer_bytes += part.peer_bytes
        self._progress.done_files += 1
        self._progress.resumed_bytes += part.resumed_bytes
        self._count()

    def _fail(self, error: TransferError) -> None:
        self._failed = error
        with suppress(OSError):
            write_file(self.folder / FAILED, error.message, mode=0o644)

    def _new_wishes(self) -> list[str]:
        """The files that the job's processes have requested since; they may write anything there."""
        try:
            descriptor = os.open(self._wishes, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            raw = os.pread(descriptor, _WISHES_BYTES, self._read)
        except OSError:
            return []
        finally:
            os.close(descriptor)
        whole = raw[: raw.rfind(b"\n") + 1]
        self._read += len(whole)
        found: list[str] = []
        for line in whole.splitlines():
            with suppress(ValueError):
                found += [path for path in from_json(Wish, json.loads(line)).paths if path in self._entries]
        return found


def _sweep(root: Path) -> None:
    """Remove the folders that killed processes left behind."""
    for folder in [path.parent for path in root.glob(f"*/{LOCK}")]:
        lock = FileLock(folder / LOCK).try_acquire()
        if lock is not None:
            remove_tree(folder)
            lock.release()
