"""The workspace itself: health and shutdown."""

from __future__ import annotations

from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire

VERSION_HEADER = "Muster-Protocol"
"""Header of every request: the protocol version of the caller."""

TOTAL_HEADER = "Muster-Total"
"""Header of a list's first page: how many items the whole list has."""

READY = b"1"
"""What a starting server writes to its waiting parent; anything else is the reason why it could not start."""


@wire
class Health:
    """Whether the server is well, and what it is."""

    version: str
    protocol: int
    workspace: str
    pid: int
    active_runs: int
    agents: tuple[str, ...]
    trouble: str = field(default="", metadata=OMIT)
    """What needs a person's attention, such as a full disk."""


@wire
class Announcement:
    """The file by which a server is found."""

    socket: str
    host: str | None = None
    pid: int | None = None
    url: str | None = None
    version: str = ""
    started_at: float = 0.0


@wire
class Shutdown:
    """The body of `POST shutdown`."""

    force: bool = False


@wire
class ShuttingDown:
    """The answer to `POST shutdown`."""

    stopping: bool
    active_runs: int
