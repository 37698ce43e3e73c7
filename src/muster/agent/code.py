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

_FICLONE = 0x40049409


class UnsafeArchive(Exception):
    """An archive that would write outside its folder."""


class Archive(Protocol):
    """Bytes as they arrive."""

    def read(self, size: int = -1, /) -> bytes: ...


Fetch = Callable[[str], AbstractContextManager[Archive]]
"""Opens the archive of a snapshot by its digest."""


def ensure(cache: Path, digest: str, fetch: Fetch) -> Path:
    """The folder with the snapshot's files; fetched when it is not there, by one process at a time."""
    folder = cache / digest
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{digest}.lock"):
        if folder.is_dir():
            return folder
        partial = cache / f"{digest}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        with fetch(digest) as archive:
            unpack(archive, partial)
        partial.rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
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
