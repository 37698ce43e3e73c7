"""Sending what a job wrote: several files at once, each verified, what is there already left alone."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.storage.staging.model import Progress, Sink, TransferError

_FILES_AT_ONCE = 4
_FINAL = (errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR)


@dataclass(frozen=True)
class Sending:
    """A file, what it is, and the name that it gets."""

    path: Path
    name: str
    size: int
    sha256: str
    already: str | None = None
    """The name under which the same content was brought there before."""


def send(sink: Sink, files: list[Sending], progress: Progress) -> None:
    """Bring every file there; a file that is there with this content costs one look."""
    progress.total_bytes = sum(file.size for file in files)
    progress.total_files = len(files)

    def one(file: Sending) -> None:
        try:
            if sink.known(file.name) == (file.size, file.sha256):
                if file.already is not None:
                    sink.remove(file.already)
                progress.add(file.size, 1, resumed=True)
                return
            if file.already is not None and _renamed(sink, file):
                progress.add(file.size, 1)
                return
            sink.put(file.name, file.path, file.size, file.sha256, progress.add)
            if file.already is not None:
                sink.remove(file.already)
            progress.add(0, 1)
        except OSError as error:
            code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "data_unavailable"
            final = isinstance(error, PermissionError) or error.errno in _FINAL
            raise TransferError(code, f"{file.name}: {error.strerror or error}", final) from error

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(one, files))


def _renamed(sink: Sink, file: Sending) -> bool:
    """Whether what was brought before could simply get its final name; verified like everything else."""
    assert file.already is not None
    try:
        sink.move(file.already, file.name)
        return sink.known(file.name) == (file.size, file.sha256)
    except (TransferError, OSError):
        return False


def measure(folder: Path, known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every regular file below, with size, hash and by what a change shows; `known` saves hashing the unchanged."""
    found: dict[str, dict[str, Any]] = {}
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(base) / name
            if facts := _measure(path, known.get(path.relative_to(folder).as_posix())):
                found[path.relative_to(folder).as_posix()] = facts
    return found


def _measure(path: Path, known: Mapping[str, Any] | None) -> dict[str, Any] | None:
    try:
        # A fifo in a file's place must not hold this up.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            seen = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
            if known and all(known.get(key) == value for key, value in seen.items()):
                return dict(known)
            return {**seen, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError:
        return None
