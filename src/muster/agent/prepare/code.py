"""Code snapshots on the node: fetched once, unpacked safely, copied for each attempt."""

from __future__ import annotations

import fcntl
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from muster.defaults import CODE_CACHE_BYTES

_FICLONE = 0x40049409


class UnsafeArchive(Exception):
    """An archive that would write outside its folder."""


class Archive(Protocol):
    """Bytes as they arrive."""

    def read(self, size: int = -1, /) -> bytes: ...


Fetch = Callable[[str], AbstractContextManager[Archive]]
"""Opens the archive of a snapshot by its digest."""


def place(cache: Path, digest: str, fetch: Fetch, target: Path, limit_bytes: int = CODE_CACHE_BYTES) -> None:
    """Copy a snapshot's files to a folder; fetched first when they are not here, by one process at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache, digest, fcntl.LOCK_SH):
        if copy_if_there(cache / digest, target):
            return
    with _locked(cache, digest, fcntl.LOCK_EX):
        folder = cache / digest
        if not folder.is_dir():
            partial = cache / f"{digest}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with fetch(digest) as archive:
                unpack(archive, partial)
            partial.rename(folder)
        copy_if_there(folder, target)
        _prune(cache, limit_bytes, digest)


def copy_if_there(folder: Path, target: Path) -> bool:
    if not folder.is_dir():
        return False
    # When it was last used.
    os.utime(folder)
    copy_tree(folder, target)
    return True


def _prune(cache: Path, limit_bytes: int, keep: str) -> None:
    """Remove what was not used for longest until the rest fits; never what somebody copies from at this moment."""
    folders = sorted((path for path in cache.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    sizes = {path: _size(path) for path in folders}
    total = sum(sizes.values())
    for folder in folders:
        if total <= limit_bytes:
            return
        digest = folder.name.removesuffix(".partial").removesuffix(".gone")
        if digest == keep:
            continue
        with suppress(BlockingIOError), _locked(cache, digest, fcntl.LOCK_EX | fcntl.LOCK_NB):
            # By another name first: half a snapshot must not be taken for a whole one.
            gone = cache / f"{digest}.gone"
            if folder != gone:
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            total -= sizes[folder]


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


@contextmanager
def _locked(cache: Path, digest: str, how: int) -> Iterator[None]:
    descriptor = os.open(cache / f"{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def unpack(archive: Archive, target: Path) -> None:
    """Unpack a tar stream; anything but files and folders below the target is refused."""
    with tarfile.open(fileobj=cast(IO[bytes], archive), mode="r|") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
                raise UnsafeArchive(f"{member.name!r} in the code archive is not a plain file or folder below it")
            path = target / name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            mode = 0o755 if member.mode & 0o100 else 0o644
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder's contents; never by hard links, since the job may write to what it gets."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        destination = target / entry.name
        if entry.is_symlink() and not entry.is_file():
            # A link to nowhere or to a folder stays a link, so that a loop of them does no harm.
            destination.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            copy_tree(Path(entry.path), destination)
        elif entry.is_file():
            copy_file(Path(entry.path), destination)


def copy_file(source: Path, target: Path) -> None:
    """Copy one file, sharing its blocks where the filesystem can."""
    with source.open("rb") as reading:
        mode = os.fstat(reading.fileno()).st_mode & 0o777 | 0o200
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as writing:
            with suppress(OSError):
                fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
                return
            shutil.copyfileobj(reading, writing, 1 << 20)
