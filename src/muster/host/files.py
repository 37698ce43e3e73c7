"""Atomic files, paths that stay in their folder, and sizes and removal of folders."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from muster.errors import JobError

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

T = TypeVar("T")

PRIVATE = 0o600
"""The mode of a file that only its owner may read."""
UNFINISHED = ".part-"
"""Part of the name of an incomplete file."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SHORTAGE_S = 300.0
_SHORTAGE_PAUSE_S = 0.1
_UNPACKED_MODE = 0o755


# When nothing can be opened


def is_shortage(error: BaseException) -> bool:
    """Whether a file could not be opened because descriptors or memory ran out, which may pass."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def despite_shortages(work: Callable[[], T], patience_s: float = _SHORTAGE_S) -> T:
    """Run `work`, with retries while descriptors or memory are exhausted."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except OSError as error:
            if not is_shortage(error) or time.monotonic() > deadline:
                raise
        time.sleep(_SHORTAGE_PAUSE_S)


# Atomic files


def write_file(path: Path, data: bytes | str, *, mode: int | None = None, durable: bool = False) -> None:
    """Replace a file atomically: readers see the old or the new content."""
    with replacing(path, mode=mode, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_json(
    path: Path, data: Any, *, indent: int | None = None, mode: int | None = None, durable: bool = False
) -> None:
    """Replace a file by JSON atomically."""
    text = json.dumps(data, indent=indent)
    write_file(path, text if indent is None else text + "\n", mode=mode, durable=durable)


def read_json(path: Path) -> Any:
    """A file's JSON value; None where it is missing, or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


@contextmanager
def replacing(path: Path, *, mode: int | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file that replaces the path when the block ends, and is discarded when it fails.

    `durable`: flushed to disk before it is visible. Without a mode the process's default counts.
    """
    part = _part_of(path)
    try:
        with new_file(part, mode) as file:
            yield file
            if durable:
                flush_to_disk(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def create_file(path: Path, data: bytes | str, *, mode: int | None = None) -> bool:
    """Create a file atomically; False when it exists already, and is kept."""
    part = _part_of(path)
    try:
        with new_file(part, mode) as file:
            file.write(data.encode() if isinstance(data, str) else data)
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def flush_to_disk(file: BinaryIO) -> None:
    """Flush a file's content to disk."""
    file.flush()
    os.fsync(file.fileno())


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all data to a descriptor."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _part_of(path: Path) -> Path:
    # Several processes may write one file at once; and a name has at most 255 bytes.
    return path.with_name(f".{path.name[:50]}{UNFINISHED}{secrets.token_hex(4)}")


def new_file(path: Path, mode: int | None = None) -> BinaryIO:
    """Open a new file for writing; without a mode the process's default counts."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666 if mode is None else PRIVATE)
    if mode is not None:
        os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


# Paths that stay in their folder


def is_safe_path(path: str, *, backslashes: bool = True) -> bool:
    """Whether a relative path stays below the folder that it is joined to, and is in normal form.

    `backslashes=False` refuses backslashes too: some storages treat them as slashes.
    """
    if "\0" in path or ("\\" in path and not backslashes):
        return False
    return not {"", ".", ".."} & set(path.split("/"))


def is_safe_name(name: str) -> bool:
    """Whether a name is one part of a path."""
    return "/" not in name and is_safe_path(name)


def safe_path(path: str) -> str:
    """The path, if it stays inside its folder."""
    if not is_safe_path(path):
        raise JobError(
            f"the name {path!r} leaves its folder", "Use a relative name without '..', empty parts or a leading slash."
        )
    return path


def leaves_folder(path: str) -> bool:
    """Whether a relative path that a person wrote leads out of its folder; `a/../b` does not."""
    if path.startswith(("/", "~")):
        return True
    depth = 0
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def is_below(path: Path, folder: Path) -> bool:
    """Whether a path is in a folder once all links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


# Folders


def remove_tree(path: Path) -> None:
    """Remove a file or folder with its content, as far as permitted; it may be missing."""
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink()
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        # Some folders may be read-only, or not even listable.
        _open_up(path)
        shutil.rmtree(path, ignore_errors=True)


def remove_aside(path: Path, aside: Path) -> None:
    """Rename a folder, then remove it, so that half of it is never taken for the whole."""
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    remove_tree(aside)


def disk_usage(folder: Path) -> int:
    """The bytes that a folder takes on disk; hard links to one file count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(base, name))  # noqa: PTH118
            except OSError:
                continue
            if status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
    return total


def _open_up(folder: Path) -> None:
    waiting = [str(folder)]
    while waiting:
        current = waiting.pop()
        with suppress(OSError):
            Path(current).chmod(0o700)
            with os.scandir(current) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


# Archives


def unpack(tar: TarFile, folder: Path, members: Iterable[TarInfo] | None = None, *, links: bool = False) -> None:
    """Extract files and folders, owned by the caller and never outside of `folder`; ValueError for anything else.

    With `links`, symbolic links may point anywhere, but nothing is written through them. Python itself checks archives
    only from 3.11.4 on.
    """
    tar.extraction_filter = lambda member, _: member
    tar.extractall(folder, _checked(tar if members is None else members, folder, links))


def _checked(members: Iterable[TarInfo], folder: Path, links: bool) -> Iterator[TarInfo]:
    """Check each member just before its extraction, so that links extracted before it are seen, too."""
    for member in members:
        if not (member.isreg() or member.isdir() or (links and (member.issym() or member.islnk()))):
            raise ValueError(f"{member.name!r} is neither a file nor a folder")
        for path in (member.name, member.linkname) if member.islnk() else (member.name,):
            if not is_below(folder / path, folder):
                raise ValueError(f"{path!r} leads out of the archive's folder")
        member.mode = (member.mode & _UNPACKED_MODE) | (0o700 if member.isdir() else 0o600)
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        yield member
