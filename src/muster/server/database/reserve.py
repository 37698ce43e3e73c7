"""Disk space held in reserve, so that a server on a full disk can still record, cancel and remove.

Two kinds: blocks that belong to the database's log already, which nobody else can take; and a file that is given up
when a server starts on a full disk, or when the first kind is used up.
"""

from __future__ import annotations

import ctypes
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from muster.defaults import RESERVE_BYTES, RESERVE_SHARE_OF_DISK
from muster.host.files import PRIVATE

log = logging.getLogger("muster.server")

_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE = 1


@dataclass(frozen=True)
class Room:
    """How much of a disk is free, and when it counts as full."""

    folder: Path
    free: int
    total: int

    @classmethod
    def of(cls, folder: Path) -> Room:
        found = os.statvfs(folder)
        return cls(folder, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @property
    def reserve(self) -> int:
        """The reserve for a disk of this size."""
        return min(RESERVE_BYTES, int(self.total * RESERVE_SHARE_OF_DISK))

    @property
    def is_full(self) -> bool:
        return self.free < self.reserve // 4

    @property
    def is_free_again(self) -> bool:
        """Whether a disk that was full no longer counts as full."""
        return self.free > self.reserve // 2

    @property
    def is_ample(self) -> bool:
        """Whether the reserve can be restored without making the disk full."""
        return self.free > 2 * self.reserve


class Reserve:
    """The reserve of a database."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def release_if_full(self) -> bool:
        """Give the file up where the disk is full; returns whether there was one."""
        if not self._file.exists() or not Room.of(self._file.parent).is_full:
            return False
        return self.release()

    def release(self) -> bool:
        """Give the file up; returns whether there was one."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        log.warning("the disk is full: its reserve %s is used", self._file)
        return True

    def keep(self, database: Path | None) -> None:
        """Restore the reserve where there is enough space; the log of the file `database` gets blocks of its own."""
        room = Room.of(self._file.parent)
        if not room.is_ample:
            return
        if not self._file.exists():
            _allocate(self._file, room.reserve // 2)
        journal = database.with_name(f"{database.name}-wal") if database is not None else None
        if journal is not None and journal.exists() and journal.stat().st_blocks * 512 < room.reserve // 4:
            _extend(journal, room.reserve // 2)


def _allocate(path: Path, size: int) -> None:
    """Create a file with all its blocks allocated."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        log.info("no reserve is kept: %s", error)
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _extend(path: Path, size: int) -> None:
    """Allocate blocks beyond a file's end, for when it grows; does nothing where that is not supported."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size))
    finally:
        os.close(descriptor)
