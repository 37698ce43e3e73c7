"""Copies of files: sharing blocks where the filesystem can, in the kernel elsewhere; hashed on the way where asked."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.storage.connectors.base import TransferError
from muster.storage.connectors.files import Folder
from muster.storage.staging.download import Damaged
from muster.storage.staging.model import Progress, stored_path
from muster.wire.data.access import FileEntry

_FICLONE = 0x40049409
_PIECE = 8 << 20
_THREADS = 4


def copy_out(data: Path, entries: Iterable[FileEntry], target: Path, one_name: str, progress: Progress) -> None:
    """Copies of cached files for one job, which it may write to."""
    pairs = [(data / stored_path(entry), target / (entry.path or one_name), entry) for entry in entries]
    _each(pairs, lambda source, copy, entry: progress.add(_copy(source, copy), 1))


def copy_in(
    source: Folder, entries: Iterable[FileEntry], target: Path, one_name: str, progress: Progress
) -> dict[str, str]:
    """Copies of local files for one job, with their hashes; a file that changes meanwhile is noticed."""
    hashes: dict[str, str] = {}

    def one(path: Path, copy: Path, entry: FileEntry) -> None:
        hashes[entry.path] = _copy_and_hash(path, copy, progress)
        source.check(entry, path.stat())
        if entry.sha256 is not None and hashes[entry.path] != entry.sha256:
            raise Damaged(entry, hashes[entry.path])
        progress.add(0, 1)

    _each([(source.path_of(entry.path), target / (entry.path or one_name), entry) for entry in entries], one)
    return hashes


def copy_frame(source: Path, target: Path) -> None:
    """Copy what a local folder has besides files: empty folders, and links that lead to no file."""
    for base, folders, names in os.walk(source):
        copy = target / Path(base).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in (*folders, *names):
            path = Path(base) / name
            # A link to a file becomes a file; others stay links, so that a loop of them does no harm.
            if path.is_symlink() and not path.is_file():
                (copy / name).symlink_to(path.readlink())


def _each(pairs: list[tuple[Path, Path, FileEntry]], act: Callable[[Path, Path, FileEntry], None]) -> None:
    for folder in sorted({str(copy.parent) for _, copy, _ in pairs}):
        Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda pair: act(*pair), pairs))
    except OSError as error:
        code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "platform"
        raise TransferError(code, f"{error.filename or 'a copy'}: {error.strerror}") from error


def _copy(source: Path, target: Path) -> int:
    with source.open("rb", buffering=0) as reading, _fresh(target, reading.fileno()) as writing:
        size = os.fstat(reading.fileno()).st_size
        if not _clone(writing.fileno(), reading.fileno()):
            _in_kernel(reading.fileno(), writing.fileno(), 0, size)
        return size


def _copy_and_hash(source: Path, target: Path, progress: Progress) -> str:
    """The hash is taken of what was just copied, while it is in the page cache."""
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as reading, _fresh(target, reading.fileno()) as writing:
        size = os.fstat(reading.fileno()).st_size
        cloned = _clone(writing.fileno(), reading.fileno())
        buffer = memoryview(bytearray(min(_PIECE, max(size, 1))))
        for offset in range(0, size, _PIECE):
            length = min(_PIECE, size - offset)
            if not cloned:
                _in_kernel(reading.fileno(), writing.fileno(), offset, length)
            filled = 0
            while filled < length:
                count = os.preadv(reading.fileno(), [buffer[filled:length]], offset + filled)
                if not count:
                    raise OSError(errno.EIO, "it became shorter while it was copied", str(source))
                filled += count
            digest.update(buffer[:length])
            progress.add(length)
    return digest.hexdigest()


def _fresh(target: Path, like: int):  # type: ignore[no-untyped-def]
    mode = os.fstat(like).st_mode & 0o777 | 0o200
    return os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb", buffering=0)


def _clone(target: int, source: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False


def _in_kernel(source: int, target: int, offset: int, length: int) -> None:
    done = 0
    while done < length:
        try:
            count = os.copy_file_range(source, target, length - done, offset + done, offset + done)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            data = os.pread(source, min(1 << 20, length - done), offset + done)
            count = os.pwrite(target, data, offset + done)
        if not count:
            raise OSError(errno.EIO, "it became shorter while it was copied")
        done += count
