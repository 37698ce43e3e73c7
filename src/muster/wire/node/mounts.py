"""Storage that the nodes of a cluster mount for their jobs."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.data.access import Access
from muster.wire.message import wire

MountKind = Literal["nfs", "fuse", "folder", "refused"]


@wire
class MountOrder:
    """One mount of an attempt; which fields are filled depends on its kind."""

    name: str
    kind: MountKind
    source: str
    """As the cluster's settings say, for messages."""
    read_only: bool = True
    host: str = field(default="", metadata=OMIT)
    port: int = field(default=0, metadata=OMIT)
    export: str = field(default="", metadata=OMIT)
    folder: str = field(default="", metadata=OMIT)
    """The local folder, where the source is on this machine."""
    access: Access | None = field(default=None, metadata=OMIT)
    why: str = field(default="", metadata=OMIT)
    """Why it cannot be mounted now."""
    next: str = field(default="", metadata=OMIT)


@wire
class MountOrders:
    """The answer to `GET agents/NODE/mounts`: with fresh credentials each time."""

    mounts: tuple[MountOrder, ...] = ()
