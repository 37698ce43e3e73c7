"""The cache of staged data: folders named by their content, shared by all agents of a host. Standard library only.

    trees/DIGEST/data      the files, read-only
    trees/DIGEST/tree.json what they must be: path, size, hash, and the times by which a later change shows
    sources/KEY            which tree a source held when it looked like KEY (its listing with ETags)
    partial/KEY            a download under way, or one that was cut off
    locks/                 held shared by those who use a tree, exclusively by those who fill or remove one
    gone/                  what is being removed

A tree appears by one rename and disappears by one rename, so a death in between leaves nothing that could be taken for
whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.defaults import CACHE_KEEP_FREE_BYTES, CACHE_SHARE_OF_DISK
from muster.storage.staging.model import Entry, TransferError, tree_digest

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Held:
    """A tree that stays as long as the lock is open."""

    digest: str
    data: Path
    size: int
    files: int
    lock: int

    def release(self) -> None:
        with suppress(OSError):
            os.close(self.lock)


@dataclass(frozen=True)
class _Item:
    """Something that takes room."""

    path: Path
    lock: Path
    size: int
    used_at: float
    is_tree: bool


class Cache:
    """One folder, used by any number of processes."""

    def __init__(self, root: Path, limit_bytes: int | None = None) -> None:
        self.root = root
        for name in ("trees", "sources", "partial", "locks", "gone"):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.limit_bytes = limit_bytes if limit_bytes is not None else _default_limit(root)

    def known(self, key: str) -> str | None:
        """The tree that a source held when it looked like this."""
        try:
            return (self.root / "sources" / key).read_text().strip() or None
        except FileNotFoundError:
            return None

    def remember(self, key: str, digest: str) -> None:
        place = self.root / "sources" / key
        part = place.with_name(f"{key}.{secrets.token_hex(4)}")
        part.write_text(digest)
        part.replace(place)

    def hold(self, digest: str) -> Held | None:
        """Keep a tree from being removed; None when it is not there, or not what it was."""
        lock = os.open(self._lock(digest), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            tree = self.root / "trees" / digest
            about = _read_json(tree / "tree.json")
            if about is not None and self._sound(tree, about):
                os.utime(tree / "tree.json")
                return Held(digest, tree / "data", about["size"], len(about["files"]), lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        if about is not None:
            self._discard(digest)
        return None

    @contextmanager
    def filling(self, key: str) -> Iterator[Path]:
        """The folder in which one process at a time fetches what looks like this."""
        lock = os.open(self._lock(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.root / "partial" / key
        finally:
            os.close(lock)

    def admit(self, key: str, size: int, what: str) -> None:
        """Make room and reserve it; refuses what cannot fit before a byte is moved."""
        lock = os.open(self.root / "locks" / "admission", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._make_room(key, size, what)
            partial = self.root / "partial" / key
            partial.mkdir(exist_ok=True)
            (partial / "reserved").write_text(str(size))
        finally:
            os.close(lock)

    def commit(self, key: str, entries: list[Entry]) -> Held:
        """Give a finished download its name; called while filling."""
        partial = self.root / "partial" / key
        data = partial / "data"
        digest = tree_digest(entries)
        files = {entry.stored: [entry.size, entry.sha256, *_times(data / entry.stored)] for entry in entries}
        about = {"boot": _boot_id(), "size": sum(entry.size for entry in entries), "files": files}
        for folder in [data, *(path for path in data.rglob("*") if path.is_dir())]:
            folder.chmod(0o555)
        for name in ("journal.jsonl", "reserved", "listing.json"):
            (partial / name).unlink(missing_ok=True)
        (partial / "tree.json").write_text(json.dumps(about))
        target = self.root / "trees" / digest
        with suppress(OSError):
            partial.rename(target)
        if partial.exists():
            # The same content came from another source first.
            self._remove(partial)
        self.remember(key, digest)
        held = self.hold(digest)
        if held is None:
            raise TransferError("platform", f"{target} was changed while it was put in place")
        return held

    def hashes(self, held: Held) -> dict[str, str]:
        """The hash of every file of a tree, by its stored path."""
        about = _read_json(held.data.parent / "tree.json") or {"files": {}}
        return {path: str(item[1]) for path, item in about["files"].items()}

    def drop_partial(self, key: str) -> None:
        self._remove(self.root / "partial" / key)

    def sweep(self) -> None:
        """Finish removals that a death cut off."""
        for path in (self.root / "gone").iterdir():
            _remove_tree(path)

    def summary(self) -> dict[str, Any]:
        items = self._items("")
        return {"root": str(self.root), "limit_bytes": self.limit_bytes, "bytes": sum(item.size for item in items)}

    def _make_room(self, key: str, size: int, what: str) -> None:
        self.sweep()
        items = sorted(self._items(key), key=lambda item: item.used_at)
        used = sum(item.size for item in items)
        busy = 0
        already = _disk_usage(self.root / "partial" / key)
        for item in items:
            if used + size <= self.limit_bytes and self._free(key) + already >= size:
                return
            if self._evict(item):
                used -= item.size
            else:
                busy += item.size
        free = self._free(key) + already
        if used + size <= self.limit_bytes and free >= size:
            return
        raise TransferError(
            "disk_full",
            f"{what} needs {_gib(size)} in the cache {self.root}: its limit is {_gib(self.limit_bytes)}, of which "
            f"{_gib(busy)} is in use by running jobs, and its disk has {_gib(max(0, free))} to give. Raise "
            "MUSTER_CACHE_BYTES or set MUSTER_CACHE_DIR to a larger disk for the node's agent.",
        )

    def _items(self, but: str) -> list[_Item]:
        found = []
        for tree in (self.root / "trees").iterdir():
            about = _read_json(tree / "tree.json")
            if about is not None:
                used_at = (tree / "tree.json").stat().st_mtime
                found.append(_Item(tree, self._lock(tree.name), about["size"], used_at, True))
        for partial in (self.root / "partial").iterdir():
            if partial.name != but:
                reserved = partial / "reserved"
                size = int(reserved.read_text() or 0) if reserved.exists() else 0
                found.append(_Item(partial, self._lock(partial.name), size, partial.stat().st_mtime, False))
        return found

    def _evict(self, item: _Item) -> bool:
        """Remove what nobody uses; False when somebody does."""
        lock = os.open(item.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove(item.path)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def _discard(self, digest: str) -> None:
        tree = self.root / "trees" / digest
        if not self._evict(_Item(tree, self._lock(digest), 0, 0.0, True)):
            raise TransferError(
                "platform", f"{tree} was changed by a job that still runs; it is removed when that job has ended"
            )

    def _sound(self, tree: Path, about: dict[str, Any]) -> bool:
        """Whether the files are as they were put there; those that seem touched are hashed again."""
        rebooted = about["boot"] != _boot_id()
        changed = False
        for path, item in about["files"].items():
            place = tree / "data" / path
            try:
                status = place.lstat()
            except OSError:
                return False
            if not rebooted and [status.st_size, status.st_mtime_ns, status.st_ctime_ns] == [item[0], *item[2:]]:
                continue
            if status.st_size != item[0] or _hash(place) != item[1]:
                return False
            item[2:] = [status.st_mtime_ns, status.st_ctime_ns]
            changed = True
        if changed or rebooted:
            _replace_json(tree / "tree.json", {**about, "boot": _boot_id()})
        return True

    def _remove(self, path: Path) -> None:
        gone = self.root / "gone" / f"{path.name}.{secrets.token_hex(4)}"
        with suppress(FileNotFoundError):
            path.rename(gone)
            _remove_tree(gone)

    def _lock(self, name: str) -> Path:
        return self.root / "locks" / name

    def _free(self, key: str) -> int:
        """What the disk can give: not what other downloads under way will still take, nor the last reserve."""
        usage = shutil.disk_usage(self.root)
        promised = 0
        for partial in (self.root / "partial").iterdir():
            if partial.name == key:
                continue
            with suppress(OSError, ValueError):
                promised += max(0, int((partial / "reserved").read_text()) - _disk_usage(partial))
        return usage.free - promised - min(CACHE_KEEP_FREE_BYTES, usage.total // 50)


def boot_unchanged(folder: Path) -> bool:
    """Whether what was written to the folder was written since this machine started."""
    try:
        return (folder / "boot").read_text() == _boot_id()
    except OSError:
        return False


def mark_boot(folder: Path) -> None:
    (folder / "boot").write_text(_boot_id())


def _default_limit(root: Path) -> int:
    given = os.environ.get("MUSTER_CACHE_BYTES", "")
    if given:
        if not given.isdigit():
            raise TransferError("bad_input", f"MUSTER_CACHE_BYTES is {given!r}; it must be a whole number of bytes")
        return int(given)
    return int(shutil.disk_usage(root).total * CACHE_SHARE_OF_DISK)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _times(path: Path) -> list[int]:
    status = path.lstat()
    return [status.st_mtime_ns, status.st_ctime_ns]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _disk_usage(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_blocks * 512  # noqa: PTH118
    return total


def _remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for base, _, _ in os.walk(path):
            with suppress(OSError):
                Path(base).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _replace_json(path: Path, data: dict[str, Any]) -> None:
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    part.write_text(json.dumps(data))
    part.replace(path)


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.2f} MiB"


def total_size(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries)
