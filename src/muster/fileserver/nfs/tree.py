"""The folder that is served, below a root of its own, by handles that outlive the process. No links are followed.

A handle names a path and the inode of the file there: the same path with another file has another handle, so that
nobody reads half of one file and half of the next.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

_TOP, _PATH, _HASH = b"\0", b"\1", b"\2"
_PATH_BYTES = 110
"""A handle has at most 128; a longer path is replaced by its hash."""
_LONG_PATHS = 100_000
_LISTINGS, _LISTED_NAMES = 1_000, 1_000_000
"""The most listings that are kept, and the most names in them; the last one is kept whatever its size."""
_SETTLED_NS = 2_000_000_000
"""A folder may change twice within one tick of its clock."""
_NAME_BYTES = 255
_FIRST_COOKIE = 3
_FOR_ALL = stat.S_IROTH


class Status(IntEnum):
    """The status codes of NFS for refusals."""

    NOENT = 2
    IO = 5
    ACCESS = 13
    NOTDIR = 20
    ISDIR = 21
    INVAL = 22
    ROFS = 30
    NAMETOOLONG = 63
    STALE = 70
    BADHANDLE = 10001
    NOTSUPP = 10004
    TOOSMALL = 10005
    SAME = 10009
    RESOURCE = 10018
    NOFILEHANDLE = 10020
    MINOR_VERS_MISMATCH = 10021
    NOT_SAME = 10027
    BADXDR = 10036
    BADNAME = 10041
    OP_ILLEGAL = 10044


class Refused(Exception):
    """An operation that failed."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


@dataclass(frozen=True)
class Node:
    """A file or folder: its path below the folder that is served; None: the root above that folder."""

    path: bytes | None
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class Tree:
    """One folder, as `/NAME`."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = os.fsencode(name)
        self._folder = os.fsencode(folder)
        self._long: OrderedDict[bytes, bytes] = OrderedDict()
        self._listings: OrderedDict[bytes, tuple[int, list[tuple[int, bytes]]]] = OrderedDict()
        self._listed = 0
        self._lock = threading.Lock()

    def top(self) -> Node:
        return Node(None, self._status(b""))

    def handle(self, node: Node) -> bytes:
        if node.path is None:
            return _TOP
        inode = node.status.st_ino.to_bytes(8, "big")
        if len(node.path) <= _PATH_BYTES:
            return _PATH + inode + node.path
        digest = hashlib.sha256(node.path).digest()
        with self._lock:
            self._long[digest] = node.path
            self._long.move_to_end(digest)
            while len(self._long) > _LONG_PATHS:
                self._long.popitem(last=False)
        return _HASH + inode + digest

    def node(self, handle: bytes) -> Node:
        """The file or folder that a handle names; clients may make up any handle."""
        kind, inode, rest = handle[:1], handle[1:9], handle[9:]
        if handle == _TOP:
            return self.top()
        if kind == _HASH:
            path = self._long.get(rest)
            if path is None:
                raise Refused(Status.STALE)
        elif kind == _PATH and len(inode) == 8 and _is_plain(rest):
            path = rest
        else:
            raise Refused(Status.BADHANDLE)
        try:
            node = Node(path, self._status(path))
        except Refused as error:
            raise Refused(Status.STALE if error.status in (Status.NOENT, Status.NOTDIR) else error.status) from None
        if node.status.st_ino != int.from_bytes(inode, "big"):
            raise Refused(Status.STALE)
        return node

    def lookup(self, node: Node, name: bytes) -> Node:
        _require_folder(node)
        if not name:
            raise Refused(Status.INVAL)
        if len(name) > _NAME_BYTES:
            raise Refused(Status.NAMETOOLONG)
        if name in (b".", b"..") or b"/" in name or b"\0" in name:
            raise Refused(Status.BADNAME)
        if node.path is None:
            if name != self._name:
                raise Refused(Status.NOENT)
            return Node(b"", self._status(b""))
        path = node.path + b"/" + name if node.path else name
        return Node(path, self._status(path))

    def above(self, node: Node) -> Node:
        _require_folder(node)
        if node.path is None:
            raise Refused(Status.NOENT)
        if not node.path:
            return self.top()
        path = node.path.rpartition(b"/")[0]
        return Node(path, self._status(path))

    def listing(self, node: Node) -> list[tuple[int, bytes]]:
        """A folder's names with their cookies, in the order of these: they stay the same while others come and go."""
        _require_folder(node)
        if node.path is None:
            return [(_FIRST_COOKIE, self._name)]
        changed = node.status.st_mtime_ns
        with self._lock:
            kept = self._listings.get(node.path)
            if kept is not None and kept[0] == changed:
                self._listings.move_to_end(node.path)
                return kept[1]
        with self._opened(node.path, os.O_DIRECTORY) as folder, os.scandir(folder) as found:
            names = [os.fsencode(item.name) for item in found if _is_served(item)]
        listed = sorted((_cookie(name), name) for name in names)
        if time.time_ns() - changed > _SETTLED_NS:
            self._keep(node.path, changed, listed)
        return listed

    def _keep(self, path: bytes, changed: int, listed: list[tuple[int, bytes]]) -> None:
        with self._lock:
            self._drop(path)
            self._listings[path] = changed, listed
            self._listed += len(listed)
            while len(self._listings) > 1 and (self._listed > _LISTED_NAMES or len(self._listings) > _LISTINGS):
                self._drop(next(iter(self._listings)))

    def _drop(self, path: bytes) -> None:
        _, dropped = self._listings.pop(path, (0, []))
        self._listed -= len(dropped)

    def read(self, node: Node, offset: int, count: int) -> tuple[bytes, bool]:
        """Bytes of a file, and whether they reach its end."""
        if node.is_folder or node.path is None:
            raise Refused(Status.ISDIR)
        if not node.status.st_mode & _FOR_ALL:
            raise Refused(Status.ACCESS)
        with self._opened(node.path, os.O_NONBLOCK) as file:
            status = os.fstat(file)
            if status.st_ino != node.status.st_ino:
                raise Refused(Status.STALE)
            data = os.pread(file, count, min(offset, status.st_size))
            return data, offset + len(data) >= status.st_size

    def room(self) -> os.statvfs_result:
        return os.statvfs(self._folder)

    def _status(self, path: bytes) -> os.stat_result:
        above, _, name = path.rpartition(b"/")
        with self._opened(above, os.O_DIRECTORY) as folder:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False) if name else os.fstat(folder)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise Refused(Status.NOENT)
        return found

    @contextmanager
    def _opened(self, path: bytes, flags: int) -> Iterator[int]:
        """A descriptor, reached from folder to folder: so none of them can be a link that leads out."""
        parts = path.split(b"/") if path else []
        try:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for number, part in enumerate(parts, 1):
                    kind = flags if number == len(parts) else os.O_DIRECTORY
                    below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=at)
                    os.close(at)
                    at = below
                yield at
            finally:
                os.close(at)
        except OSError as error:
            raise Refused(_STATUSES.get(error.errno or 0, Status.IO)) from error


_STATUSES = {
    errno.ENOENT: Status.NOENT,
    errno.ENOTDIR: Status.NOTDIR,
    errno.ELOOP: Status.NOENT,
    errno.EACCES: Status.ACCESS,
    errno.EPERM: Status.ACCESS,
    errno.ENAMETOOLONG: Status.NAMETOOLONG,
}


def _require_folder(node: Node) -> None:
    if not node.is_folder:
        raise Refused(Status.NOTDIR)


def _is_plain(path: bytes) -> bool:
    return not path or (all(part not in (b"", b".", b"..") for part in path.split(b"/")) and b"\0" not in path)


def _is_served(item: os.DirEntry[str]) -> bool:
    return item.is_file(follow_symlinks=False) or item.is_dir(follow_symlinks=False)


def _cookie(name: bytes) -> int:
    """A name's cookie: it depends on the name alone, and fits every client."""
    return (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 2) + _FIRST_COOKIE
