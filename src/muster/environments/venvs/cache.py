"""Environments of this host: one folder for each key, complete or not there, and never removed while in use.

A folder is complete once it has its mark, which is written last. Whoever builds holds the key's build lock, whoever
uses it a shared lock; both end with their process, so nothing has to be tidied up after a death. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.paths import EnvironmentPaths

_GONE = ".gone-"


@dataclass(frozen=True)
class Built:
    """A complete environment."""

    key: str
    folder: Path
    facts: Mapping[str, Any]
    """What its mark says: label, python (version), lock, size, built_at, built_s, recipe."""
    used_at: float

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def size(self) -> int:
        return int(self.facts.get("size", 0))


class Cache:
    """The folder that holds them."""

    def __init__(self, root: Path) -> None:
        self.paths = EnvironmentPaths(root)

    def find(self, key: str) -> Built | None:
        """The environment, where it is complete and its interpreter is still there."""
        folder = self.paths.folder(key)
        try:
            facts = json.loads(self.paths.mark(key).read_text())
            used_at = self.paths.use_lock(key).stat().st_mtime
        except (OSError, ValueError):
            return None
        if not isinstance(facts, dict) or not (folder / "bin" / "python").exists():
            return None
        return Built(key, folder, facts, used_at)

    def hold(self, key: str) -> tuple[Built, int] | None:
        """The environment and a descriptor that keeps it from being removed while it is open."""
        if not self.paths.folder(key).is_dir():
            return None
        lock = _open(self.paths.use_lock(key))
        fcntl.flock(lock, fcntl.LOCK_SH)
        found = self.find(key)
        if found is None:
            os.close(lock)
            return None
        os.utime(lock)
        return found, lock

    @contextlib.contextmanager
    def building(self, key: str, waits: Callable[[], None]) -> Iterator[int]:
        """Hold the key's build lock; `waits` is called when somebody else has it. Children may inherit it."""
        lock = _open(self.paths.build_lock(key))
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def complete(self, key: str, facts: Mapping[str, Any]) -> None:
        """Mark what was built as complete."""
        _open_and_close(self.paths.use_lock(key))
        mark = self.paths.mark(key)
        partial = mark.with_name(mark.name + ".new")
        with partial.open("w") as file:
            json.dump(dict(facts), file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(mark)

    def discard(self, key: str) -> None:
        """Remove what a build left, complete or not; only for whoever holds the build lock."""
        folder = self.paths.folder(key)
        with contextlib.suppress(FileNotFoundError):
            gone = folder.with_name(f"{_GONE}{key}-{os.getpid()}-{time.monotonic_ns()}")
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def remove(self, key: str) -> bool:
        """Remove an environment unless somebody uses or builds it."""
        with _free(self.paths.build_lock(key)) as unbuilt, _free(self.paths.use_lock(key)) as unused:
            if not (unbuilt and unused):
                return False
            self.discard(key)
            return True

    def in_use(self, key: str) -> bool:
        with _free(self.paths.use_lock(key)) as free:
            return not free

    def all(self) -> list[Built]:
        """Every complete environment, the one used last first."""
        built = [found for key in self._keys() if (found := self.find(key))]
        return sorted(built, key=lambda item: item.used_at, reverse=True)

    def sweep(self) -> list[str]:
        """Remove what killed builds and removals left; returns what it was."""
        swept = []
        for path in self._folders():
            if path.name.startswith(_GONE):
                shutil.rmtree(path, ignore_errors=True)
            elif self.find(path.name) is None and self.remove(path.name):
                swept.append(path.name)
        return swept

    def evict(self, limit_bytes: int, keep: str = "") -> list[str]:
        """Remove the least recently used until the rest fits; what is in use stays, and counts."""
        built = self.all()
        total = sum(item.size for item in built)
        evicted = []
        for item in reversed(built):
            if total <= limit_bytes:
                break
            if item.key != keep and self.remove(item.key):
                total -= item.size
                evicted.append(item.key)
        return evicted

    def _keys(self) -> list[str]:
        return [path.name for path in self._folders() if not path.name.startswith(_GONE)]

    def _folders(self) -> list[Path]:
        root = self.paths.root
        if not root.is_dir():
            return []
        return sorted(
            path for path in root.iterdir() if path.is_dir() and (path.name[0] != "." or path.name.startswith(_GONE))
        )


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _open_and_close(path: Path) -> None:
    os.close(_open(path))


@contextlib.contextmanager
def _free(path: Path) -> Iterator[bool]:
    """Whether nobody holds a lock; held meanwhile."""
    lock = _open(path)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
    finally:
        os.close(lock)
