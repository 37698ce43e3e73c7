"""Safe access to files in folders that somebody else can write to: links are never followed.

Others must not be able to replace the folder that a call begins at; they may replace everything below it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_ALWAYS = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _ALWAYS


def open_inside(folder: Path, inner: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file below a folder. Never blocks, whatever kind of file it is."""
    with folder_inside(folder, inner.parent) as parent:
        return os.open(inner.name, flags | os.O_NONBLOCK | _ALWAYS, 0o644, dir_fd=parent)


@contextmanager
def folder_inside(folder: Path, inner: Path, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder below another one; folders that are created get the outermost one's owner."""
    current = os.open(folder, _FOLDER)
    owner = os.fstat(current)
    try:
        for part in inner.parts:
            if part in ("..", "/"):
                raise OSError(errno.EINVAL, f"{inner} leaves the folder")
            is_new = False
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
                    is_new = True
            above, current = current, os.open(part, _FOLDER, dir_fd=current)
            os.close(above)
            if is_new and os.getuid() == 0:
                os.fchown(current, owner.st_uid, owner.st_gid)
        yield current
    finally:
        os.close(current)


def put_inside(folder: Path, inner: Path, unfinished: str, source: IO[bytes]) -> None:
    """Write a file below a folder atomically: it is written to the subfolder `unfinished` first."""
    name = secrets.token_hex(8)
    with folder_inside(folder, Path(unfinished), make=True) as scratch:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS
        try:
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=scratch), "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
                owner = os.fstat(scratch)
                if os.getuid() == 0:
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            with folder_inside(folder, inner.parent, make=True) as parent:
                os.rename(name, inner.name, src_dir_fd=scratch, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=scratch)
            raise
