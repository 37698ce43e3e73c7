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
"""What a filesystem tells of a file."""
_TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated")


@contextmanager
def replacing(filesystem: Any, path: str) -> Iterator[BinaryIO]:
    """A file that takes the path's place when the block ends, and leaves nothing when it fails."""
    part = f"{path}{UNFINISHED}{secrets.token_hex(4)}"
    filesystem.makedirs(part.rpartition("/")[0], exist_ok=True)
    try:
        with filesystem.open(part, "wb") as file:
            yield file
        filesystem.mv(part, path)
    except BaseException:
        if filesystem.exists(part):
            filesystem.rm(part)
        raise


def written_at(info: Info) -> float | None:
    """When a file was written, where its filesystem tells."""
    for key in _TIMES:
        at = info.get(key)
        if isinstance(at, datetime):
            return at.timestamp()
        if isinstance(at, int | float):
            return float(at)
    return None
