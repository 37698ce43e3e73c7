"""Files of any filesystem that fsspec knows. Standard library only: the filesystem comes from the caller."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, BinaryIO

from muster.host.files import UNFINISHED
from muster.wire.codec import Json

Info = Mapping[str, Json | datetime]
"""A filesystem's facts about a file."""
_TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated")


@contextmanager
def replacing(filesystem: Any, path: str) -> Iterator[BinaryIO]:
    """A file that replaces the path when the block ends, and leaves nothing when it fails."""
    part = f"{path}{UNFINISHED}{secrets.token_hex(4)}"
    filesystem.makedirs(part.rpartition("/")[0], exist_ok=True)
    try:
        with filesystem.open(part, "wb") as file:
            yield file
        move_file(filesystem, part, path)
    except BaseException:
        if filesystem.exists(part):
            filesystem.rm_file(part)
        raise


def move_file(filesystem: Any, source: str, target: str) -> None:
    """Give one file another name. Names are taken as they are: fsspec's own `mv` reads `*`, `?` and `[` as patterns."""
    if not is_local(filesystem):
        try:
            filesystem.cp_file(source, target)
        except NotImplementedError:
            # A server that cannot copy, such as one of SFTP, can rename.
            filesystem.mv(source, target)
            return
        filesystem.rm_file(source)
        return
    filesystem.mv(source, target)


def check_size(filesystem: Any, path: str, size: int) -> None:
    """Check that a file is complete under its final name; raises OSError."""
    filesystem.invalidate_cache()
    try:
        found = filesystem.info(path)
    except FileNotFoundError:
        raise OSError(f"{path} was sent, and is not there") from None
    if found.get("size") != size or found.get("type") != "file":
        raise OSError(f"{path}: {size} bytes were sent, and {found.get('size')} lie there")


def is_local(filesystem: Any) -> bool:
    """Whether the files are on this machine."""
    protocols = filesystem.protocol
    return "file" in ((protocols,) if isinstance(protocols, str) else protocols)


def written_at(info: Info) -> float | None:
    """When a file was written, if its filesystem knows."""
    for key in _TIMES:
        at = info.get(key)
        if isinstance(at, datetime):
            return at.timestamp()
        if isinstance(at, int | float):
            return float(at)
    return None
