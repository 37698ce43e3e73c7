"""The cache of staged data: folders named by their content, shared by all agents of a host. Standard library only.

trees/DIGEST/data      the files, read-only
trees/DIGEST/tree.json what they must be: path, size, hash, and the times that reveal a later change
trees/.partial/KEY     a download under way, or one that was cut off
sources/KEY            which tree a source held when it looked like KEY (its listing with ETags)
shared/NAME.json       what other nodes may ask for (`storage.peers.shelf`)
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.defaults import CACHE_KEEP_FREE_BYTES, CACHE_SHARE_OF_DISK
from muster.host.cache import Entry, FolderCache, HeldEntry
from muster.host.files import remove_tree, write_file, write_json
from muster.host.hashing import sha256_of
from muster.host.locks import HeldLock
from muster.storage.connectors.base import TransferError
from muster.storage.staging.model import stored_path, total_size, tree_digest
from muster.wire.codec import to_json
from muster.wire.data.access import FileEntry
from muster.wire.message import wire

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TREE = "tree.json"
_EARLIER_LAYOUT = ("partial", "locks", "gone")
_DIGEST = re.compile("[0-9a-f]{64}")
_WORK_FILES = ("journal.jsonl", "listing.json", "blocks")


@wire
class Tree:
    """What the files of a tree must be."""

    boot: str
    """Times are comparable only until the machine restarts."""
    size: int
    files: Mapping[str, tuple[int, str, int, int]]
    """By path: size, hash, mtime and ctime in ns."""


@dataclass(frozen=True)
class Held:
    """A tree that stays as long as its lock is held."""

    digest: str
    data: Path
    tree: Tree
    lock: HeldLock

    @property
    def size(self) -> int:
        return self.tree.size

    def release(self) -> None:
        self.lock.release()


@dataclass(frozen=True)
class Cached:
    """A tree of the cache, as it is listed."""

    digest: str
    size: int
    files: int
    used_at: float
    in_use: bool
    first_file: str


class Cache:
    """One folder, used by any number of processes."""

    def __init__(self, root: Path, limit_bytes: int | None = None) -> None:
        self.root = root
        (root / "sources").mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _EARLIER_LAYOUT:
            if (root / name).is_dir():
                remove_tree(root / name)
        limit = limit_bytes if limit_bytes is not None else _default_limit(root)
        self._trees = FolderCache(
            root / "trees", limit, Tree, record_name=_TREE, keep_free_bytes=CACHE_KEEP_FREE_BYTES, is_sound=_is_sound
        )

    def known(self, key: str) -> str | None:
        """The tree that a source held when its listing had this key."""
        return read_source(self.root, key)

    def hold(self, digest: str) -> Held | None:
        """Keep a tree from being removed; None if it is missing, or has changed."""
        held = self._trees.hold(digest)
        if held is not None:
            return _held(held)
        if self._trees.folder(digest).is_dir() and not self._trees.remove(digest):
            raise TransferError(
                "platform",
                f"{self._trees.folder(digest)} was changed by a job that still runs; it is removed when that job has "
                "ended",
            )
        return None

    @contextmanager
    def filling(self, key: str) -> Iterator[Path]:
        """The folder in which one process at a time fetches the files of the listing with this key."""
        with self._trees.building(key):
            yield self._trees.partial(key)

    def admit(self, key: str, size: int, what: str) -> None:
        """Make room and reserve it; refuses what cannot fit before a byte is moved."""
        room = self._trees.reserve(key, size)
        if room.enough:
            return
        free = max(0, self._trees.free_bytes((key,)))
        raise TransferError(
            "disk_full",
            f"{what} needs {_gib(size)} in the cache {self.root}: its limit is {_gib(self._trees.limit_bytes)}, of "
            f"which {_gib(room.busy_bytes)} is in use by running jobs, and its disk has {_gib(free)} to give",
            next=_over_limit(size, self._trees.limit_bytes, room.busy_bytes),
        )

    def commit(self, key: str, entries: list[FileEntry]) -> Held:
        """Give a finished download its name; called while filling."""
        partial = self._trees.partial(key)
        data, digest = partial / "data", tree_digest(entries)
        files = {
            stored_path(entry): (entry.size, entry.sha256 or "", *_times(data / stored_path(entry)))
            for entry in entries
        }
        for folder in [data, *(path for path in data.rglob("*") if path.is_dir())]:
            folder.chmod(0o555)
        for name in _WORK_FILES:
            (partial / name).unlink(missing_ok=True)
        # The same content may be there already, from another source; if it was damaged since, it is removed first.
        if found := self.hold(digest):
            self.drop_partial(key)
            write_file(self.root / "sources" / key, digest)
            return found
        tree = Tree(_boot_id(), total_size(entries), files)
        held = self._trees.commit(digest, tree, made_as=key)
        write_file(self.root / "sources" / key, digest)
        if not _is_sound(held.entry):
            held.lock.release()
            raise TransferError("platform", f"{held.entry.folder} was changed while it was put in place")
        return _held(held)

    @property
    def limit_bytes(self) -> int:
        return self._trees.limit_bytes

    def trees(self) -> list[Cached]:
        """Every tree, the one used last first."""
        return [
            Cached(
                entry.key,
                entry.record.size,
                len(entry.record.files),
                entry.used_at,
                self._trees.is_used(entry.key),
                min(entry.record.files, default=""),
            )
            for entry in self._trees.entries()
        ]

    def remove(self, digest: str) -> bool:
        """Remove a tree unless it is in use."""
        return self._trees.remove(digest)

    def drop_partial(self, key: str) -> None:
        """Begin again from nothing; called while filling."""
        self._trees.discard(key)

    def make_room(self, size: int) -> None:
        """Remove the least recently used trees, except those in use, until that much fits."""
        self._trees.make_room(size)


def read_source(root: Path, key: str) -> str | None:
    """The tree that a source held when its listing had this key, as recorded in the cache at `root`."""
    try:
        found = (root / "sources" / key).read_text(errors="replace").strip()
    except OSError:
        return None
    # It becomes part of a path.
    return found if _DIGEST.fullmatch(found) else None


def boot_unchanged(folder: Path) -> bool:
    """Whether the folder was written since this machine started."""
    try:
        return (folder / "boot").read_text() == _boot_id()
    except OSError:
        return False


def mark_boot(folder: Path) -> None:
    (folder / "boot").write_text(_boot_id())


def _held(held: HeldEntry[Tree]) -> Held:
    return Held(held.entry.key, held.entry.folder / "data", held.entry.record, held.lock)


def _is_sound(entry: Entry[Tree]) -> bool:
    """Whether the files are unchanged; those that seem touched are hashed again."""
    tree, boot = entry.record, _boot_id()
    files = dict(tree.files)
    for path, (size, sha256, changed_ns, entry_ns) in tree.files.items():
        file = entry.folder / "data" / path
        try:
            status = file.lstat()
        except OSError:
            return False
        found = (size, sha256, status.st_mtime_ns, status.st_ctime_ns)
        if tree.boot == boot and status.st_size == size and found[2:] == (changed_ns, entry_ns):
            continue
        if status.st_size != size or sha256_of(file) != sha256:
            return False
        files[path] = found
    if files != tree.files or tree.boot != boot:
        write_json(entry.folder / _TREE, to_json(Tree(boot, tree.size, files)))
    return True


def _over_limit(size: int, limit: int, busy: int) -> str:
    """Advice for a cache without room: about its own limit, or about its disk."""
    larger = "set MUSTER_CACHE_DIR to a larger disk for the node's agent"
    if size > limit:
        return (
            f"Raise MUSTER_CACHE_BYTES or {larger}: freeing space does not help, the limit is smaller than the input."
        )
    if size > limit - busy:
        return f"Wait for the jobs that use the cache, raise MUSTER_CACHE_BYTES, or {larger}."
    return f"Free space on the cache's disk, or {larger}."


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


def _times(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_mtime_ns, status.st_ctime_ns


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.2f} MiB"
