"""Virtual environments of this host: a folder for each key, complete or not there, and never removed while in use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from muster.defaults import ENVIRONMENTS_LIMIT_BYTES
from muster.host.cache import Entry, FolderCache
from muster.host.locks import HeldLock
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@wire
class BuildRecord:
    """What lies with a complete environment."""

    label: str
    python: str
    """Its version."""
    lock: tuple[str, ...]
    size: int
    built_at: float
    built_s: float
    recipe: Recipe
    indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """A complete environment."""

    key: str
    folder: Path
    record: BuildRecord
    used_at: float

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def size(self) -> int:
        return self.record.size


class Cache:
    """The folder that holds them, with a limit in bytes."""

    def __init__(self, root: Path, limit_bytes: int = ENVIRONMENTS_LIMIT_BYTES) -> None:
        self.root = root
        self._folders = FolderCache(
            root, limit_bytes, record_name="muster-environment.json", is_sound=lambda entry: _built(entry) is not None
        )

    def find(self, key: str) -> Built | None:
        """The environment, where it is complete and its interpreter is still there."""
        entry = self._folders.find(key)
        return _built(entry) if entry else None

    def hold(self, key: str) -> tuple[Built, HeldLock] | None:
        """The environment and what keeps it from being removed."""
        held = self._folders.hold(key)
        if held is None:
            return None
        built = _built(held.entry)
        assert built is not None
        return built, held.lock

    def building(self, key: str, waiting: Callable[[], None]) -> AbstractContextManager[HeldLock]:
        """One process at a time builds what a key stands for; its tools inherit the lock."""
        return self._folders.building(key, waiting)

    def complete(self, key: str, record: BuildRecord) -> None:
        """Mark what was built as complete."""
        self._folders.complete(key, to_json(record))

    def folder(self, key: str) -> Path:
        return self._folders.folder(key)

    def discard(self, key: str) -> None:
        """Remove what a build left, complete or not; only while building."""
        self._folders.discard(key)

    def remove(self, key: str) -> bool:
        """Remove an environment unless somebody uses or builds it."""
        return self._folders.remove(key)

    def is_used(self, key: str) -> bool:
        return self._folders.is_used(key)

    def all(self) -> list[Built]:
        """Every complete environment, the one used last first."""
        return [built for entry in self._folders.entries() if (built := _built(entry))]

    def sweep(self) -> list[str]:
        """Remove what killed builds and removals left, and environments without an interpreter; returns what it was."""
        unsound = [entry.key for entry in self._folders.entries() if _built(entry) is None]
        return [*self._folders.sweep(), *(key for key in unsound if self.remove(key))]

    def make_room(self, keep: str = "") -> tuple[str, ...]:
        """Remove the least recently used until the rest fits; what is in use stays, and counts."""
        return self._folders.make_room(keep=(keep,)).removed


def _built(entry: Entry) -> Built | None:
    if not (entry.folder / "bin" / "python").exists():
        return None
    try:
        return Built(entry.key, entry.folder, from_json(BuildRecord, entry.record), entry.used_at)
    except WireError:
        return None
