"""Sending a job's outputs: several files at once, each verified; files that are there already are skipped."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.host.hashing import measure_open
from muster.storage.connectors.base import Sink, TransferError
from muster.storage.staging.messages import FileFacts, Sending
from muster.storage.staging.model import Progress

_SMALL_BYTES = 1 << 20
_SMALL_AT_ONCE = 16
_LARGE_AT_ONCE = 4
_FINAL = (errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST)


def send(sink: Sink, files: Sequence[Sending], progress: Progress) -> None:
    """Send every file; one that is there already with this content is only checked."""
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
            sink.put(file.name, Path(file.path), file.size, file.sha256, progress.add)
            if file.already is not None:
                sink.remove(file.already)
            progress.add(0, 1)
        except OSError as error:
            raise _trouble(file.name, error) from error

    small = [file for file in files if file.size <= _SMALL_BYTES]
    large = [file for file in files if file.size > _SMALL_BYTES]
    # Small ones wait for answers and disks; large ones, sent in blocks, take memory.
    for group, at_once in ((small, _SMALL_AT_ONCE), (large, _LARGE_AT_ONCE)):
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, group))


def check(sink: Sink, name: str) -> None:
    """Raise TransferError where a file by that name could not be sent."""
    try:
        sink.check_writable(name)
    except OSError as error:
        raise _trouble(name, error) from error


def _trouble(name: str, error: OSError) -> TransferError:
    code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "data_unavailable"
    final = isinstance(error, PermissionError) or error.errno in _FINAL
    return TransferError(code, f"{name}: {error.strerror or error}", final)


def _renamed(sink: Sink, file: Sending) -> bool:
    """Whether a file sent before could simply be renamed; verified like all others."""
    assert file.already is not None
    try:
        sink.move(file.already, file.name)
        return sink.known(file.name) == (file.size, file.sha256)
    except (TransferError, OSError):
        return False


def measure(folder: Path, known: Mapping[str, FileFacts]) -> dict[str, FileFacts]:
    """Every regular file below, with the facts that reveal a change; unchanged ones of `known` are not hashed again."""
    found: dict[str, FileFacts] = {}
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(base) / name
            inner = path.relative_to(folder).as_posix()
            if facts := _measure(path, known.get(inner)):
                found[inner] = facts
    return found


def _measure(path: Path, known: FileFacts | None) -> FileFacts | None:
    try:
        # A fifo in a file's place must not hold this up.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            seen = (status.st_size, status.st_mtime_ns, status.st_ino)
            if known is not None and (known.size, known.mtime_ns, known.inode) == seen:
                return known
            return FileFacts(*seen, measure_open(file).sha256)
    except OSError:
        return None
