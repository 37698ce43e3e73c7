"""Caches with a limit in bytes: least recently used entries are removed first, entries in use stay.

    KEY/             an entry: a folder that is complete once it has its record, which is written last
    .partial/KEY/    an unfinished entry, in progress or interrupted, where it is not made in place
    .locks/KEY.use   held shared by those who use the entry; its time is that of the last use
    .locks/KEY.build held exclusively by the one who makes it
    .gone/           what is being removed

Locks end with their processes, so a crash needs no clean-up. An entry is removed by one rename first, so a crash in
between leaves nothing that could be taken for complete.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from muster.host import files
from muster.host.locks import FileLock, HeldLock
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.message import wire

_RESERVED = "reserved"


class HasSize(Protocol):
    """Something that takes space."""

    @property
    def size(self) -> int: ...


class Removable(HasSize, Protocol):
    """Something that takes space and may be removed."""

    @property
    def key(self) -> str: ...

    @property
    def used_at(self) -> float: ...


Item = TypeVar("Item", bound=Removable)


@dataclass(frozen=True)
class Room:
    """The outcome of making room."""

    removed: tuple[str, ...]
    used_bytes: int
    """The size of what is left."""
    busy_bytes: int
    """The part of it that could not be removed because it is in use."""
    enough: bool


def make_room(
    items: Iterable[Item], remove: Callable[[Item], bool], enough: Callable[[int], bool], keep: Collection[str] = ()
) -> Room:
    """Remove the least recently used items until enough is free; items in use stay, and count.

    `remove` returns whether it could, and `enough` is called with the bytes that are left.
    """
    oldest_first = sorted(items, key=lambda item: item.used_at)
    used = sum(item.size for item in oldest_first)
    busy = 0
    removed = []
    for item in oldest_first:
        if enough(used):
            break
        if item.key in keep:
            continue
        if remove(item):
            used -= item.size
            removed.append(item.key)
        else:
            busy += item.size
    return Room(tuple(removed), used, busy, enough(used))


class UseLocks:
    """Use locks of entries, and when each was last used; entries may be folders, or anything with a key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, key: str) -> HeldLock:
        """Keep an entry from being removed, and note that it is used now."""
        held = self._lock(key).acquire(shared=True)
        held.touch()
        return held

    def claim(self, key: str) -> HeldLock | None:
        """Keep others from using an entry; None when it is in use."""
        return self._lock(key).try_acquire()

    def is_used(self, key: str) -> bool:
        return not self._lock(key).is_free()

    def used_at(self, key: str) -> float:
        """When it was last used; 0 where it never was."""
        return self._lock(key).used_at()

    def _lock(self, key: str) -> FileLock:
        return FileLock(self._folder / f"{key}.use")


Record = TypeVar("Record", bound=HasSize)
"""The record of a complete entry: a message with at least its size."""


@wire
class Size:
    """The record of an entry that needs no other."""

    size: int


@dataclass(frozen=True)
class Entry(Generic[Record]):
    """A complete entry."""

    key: str
    folder: Path
    record: Record
    used_at: float

    @property
    def size(self) -> int:
        return self.record.size


@dataclass(frozen=True)
class HeldEntry(Generic[Record]):
    """An entry that is kept while its lock is held."""

    entry: Entry[Record]
    lock: HeldLock


@dataclass(frozen=True)
class _Partial:
    """An unfinished entry, with the space that is reserved for it."""

    key: str
    size: int
    used_at: float


class FolderCache(Generic[Record]):
    """Folders by their keys, used by any number of processes."""

    def __init__(
        self,
        root: Path,
        limit_bytes: int,
        record: type[Record],
        *,
        record_name: str = "entry.json",
        keep_free_bytes: int = 0,
        is_sound: Callable[[Entry[Record]], bool] = lambda entry: True,
    ) -> None:
        """`keep_free_bytes` of the disk are left free. `is_sound` is called before an entry is used."""
        self.root = root
        self.limit_bytes = limit_bytes
        self._record = record
        self._record_name = record_name
        self._keep_free_bytes = keep_free_bytes
        self._is_sound = is_sound
        self._use = UseLocks(root / ".locks")

    # Using

    def find(self, key: str) -> Entry[Record] | None:
        """An entry that is complete and sound."""
        entry = self.read(key)
        return entry if entry is not None and self._is_sound(entry) else None

    def hold(self, key: str) -> HeldEntry[Record] | None:
        """An entry that is kept while its lock is held; None when it is missing, or not sound."""
        if not self.folder(key).is_dir():
            return None
        self._make_folders()
        lock = self._use.hold(key)
        try:
            entry = self.find(key)
        except BaseException:
            lock.release()
            raise
        if entry is None:
            lock.release()
            return None
        return HeldEntry(entry, lock)

    def read(self, key: str) -> Entry[Record] | None:
        """An entry that is complete according to its record."""
        try:
            record = from_json(self._record, files.read_json(self.folder(key) / self._record_name))
        except WireError:
            return None
        return Entry(key, self.folder(key), record, self._use.used_at(key))

    def entries(self) -> list[Entry[Record]]:
        """Every complete entry, the one used last first."""
        found = [entry for key in self._keys() if (entry := self.read(key))]
        return sorted(found, key=lambda entry: entry.used_at, reverse=True)

    def is_used(self, key: str) -> bool:
        return self._use.is_used(key)

    def folder(self, key: str) -> Path:
        return self.root / key

    # Making

    @contextmanager
    def building(self, key: str, waiting: Callable[[], None] | None = None) -> Iterator[HeldLock]:
        """One process at a time builds an entry; `waiting` is called when another one does.

        Children may inherit the lock, so that nobody else builds while one of them is still writing.
        """
        self._make_folders()
        with self._build_lock(key).acquire(waiting=waiting) as lock:
            yield lock

    def partial(self, key: str) -> Path:
        """The folder in which a movable entry is made; called while building."""
        return self.root / ".partial" / key

    def complete(self, key: str, record: Record) -> None:
        """Mark what was made in its own folder as complete; called while building."""
        with self._use.hold(key):
            files.write_json(self.folder(key) / self._record_name, to_json(record), durable=True)

    def commit(self, key: str, record: Record, made_as: str | None = None) -> HeldEntry[Record]:
        """Move the partial folder to its key, and hold the entry; called while building it, or `made_as`."""
        partial = self.partial(made_as or key)
        (partial / _RESERVED).unlink(missing_ok=True)
        files.write_json(partial / self._record_name, to_json(record))
        # Held before it exists, so that nobody can remove it in between.
        lock = self._use.hold(key)
        try:
            with suppress(OSError):
                partial.rename(self.folder(key))
            if partial.exists():
                # The same content arrived by another way first.
                self._remove(partial)
            entry = self.read(key)
            if entry is None:
                raise FileExistsError(f"{self.folder(key)} is in the way of an entry of the cache")
        except BaseException:
            lock.release()
            raise
        return HeldEntry(entry, lock)

    def discard(self, key: str) -> None:
        """Remove an entry, complete or not; only while building."""
        self._remove(self.folder(key))
        self._remove(self.partial(key))

    # Room

    def reserve(self, key: str, size: int) -> Room:
        """Make room for an entry and reserve it before a byte is moved; reserves nothing where it cannot fit."""
        self._make_folders()
        with FileLock(self.root / ".locks" / "admission").acquire():
            room = self.make_room(size, keep=(key,))
            if room.enough:
                partial = self.partial(key)
                partial.mkdir(exist_ok=True)
                (partial / _RESERVED).write_text(str(size))
            return room

    def make_room(self, wanted_bytes: int = 0, keep: Collection[str] = ()) -> Room:
        """Remove the least recently used entries until so much more fits; `keep` stays, uncounted if unfinished."""
        already = sum(files.disk_usage(self.partial(key)) for key in keep) if wanted_bytes else 0

        def enough(used: int) -> bool:
            fits = used + wanted_bytes <= self.limit_bytes
            return fits and (not self._keep_free_bytes or self.free_bytes(keep) + already >= wanted_bytes)

        self._finish_removals()
        partials = [partial for partial in self._partials() if partial.key not in keep]
        items: list[Entry[Record] | _Partial] = [*self.entries(), *partials]
        return make_room(items, self._evict, enough, keep)

    def remove(self, key: str) -> bool:
        """Remove an entry unless somebody uses or builds it."""
        self._make_folders()
        build = self._build_lock(key).try_acquire()
        if build is None:
            return False
        with build:
            use = self._use.claim(key)
            if use is None:
                return False
            with use:
                self.discard(key)
        return True

    def sweep(self) -> list[str]:
        """Remove what killed builds and removals left; returns the keys."""
        self._finish_removals()
        return [key for key in self._keys() if self.read(key) is None and self.remove(key)]

    def free_bytes(self, but: Collection[str] = ()) -> int:
        """Free disk space, less what unfinished entries will still take and less the reserve."""
        usage = shutil.disk_usage(self.root)
        waiting = [partial for partial in self._partials() if partial.key not in but]
        promised = sum(max(0, item.size - files.disk_usage(self.partial(item.key))) for item in waiting)
        return usage.free - promised - min(self._keep_free_bytes, usage.total // 50)

    def _evict(self, item: Entry[Record] | _Partial) -> bool:
        if isinstance(item, Entry):
            return self.remove(item.key)
        lock = self._build_lock(item.key).try_acquire()
        if lock is None:
            return False
        with lock:
            self._remove(self.partial(item.key))
        return True

    def _keys(self) -> list[str]:
        return sorted(path.name for path in _folders(self.root) if not path.name.startswith("."))

    def _partials(self) -> list[_Partial]:
        found = []
        for path in _folders(self.root / ".partial"):
            with suppress(FileNotFoundError):
                found.append(_Partial(path.name, _reserved(path), path.stat().st_mtime))
        return found

    def _remove(self, path: Path) -> None:
        gone = self.root / ".gone"
        gone.mkdir(exist_ok=True)
        files.remove_aside(path, gone / f"{path.name}.{secrets.token_hex(4)}")

    def _finish_removals(self) -> None:
        for path in _folders(self.root / ".gone"):
            files.remove_tree(path)

    def _build_lock(self, key: str) -> FileLock:
        return FileLock(self.root / ".locks" / f"{key}.build")

    def _make_folders(self) -> None:
        for name in (".locks", ".partial", ".gone"):
            (self.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def _folders(root: Path) -> list[Path]:
    try:
        return [path for path in root.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []


def _reserved(partial: Path) -> int:
    try:
        return int((partial / _RESERVED).read_text())
    except (OSError, ValueError):
        return files.disk_usage(partial)
