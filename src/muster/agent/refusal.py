"""Why an attempt cannot be prepared or started on a node."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from muster.wire.node.agents import Refused


class Refusal(Exception):
    """The attempt cannot be prepared or started here; becomes the event `refused`."""

    def __init__(self, code: str, message: str, next: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.event = Refused(code, message, next, tuple(lines))


def refusal_of(error: OSError, folder: Path) -> Refusal:
    """The refusal for an operating system error."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"the disk of {folder} is full ({what}). Free some space there, or move the workspace."
        return Refusal("disk_full", message)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        next_step = "Raise their limit (`ulimit -n`, LimitNOFILE) for what starts Muster there, and start it again."
        return Refusal("platform", f"the node's agent has used up its file descriptors ({what})", next_step)
    return Refusal("platform", f"the attempt could not be prepared in {folder}: {what}")
