"""Retention: what is no longer referred to, and its removal."""

from __future__ import annotations

from muster.defaults import GC_AGE_S
from muster.wire.message import check_range, wire


@wire
class RetentionPolicy:
    """The body of `POST gc`: only older items are removed; the last few unused code snapshots stay."""

    dry_run: bool = True
    older_than_s: float = GC_AGE_S
    keep_last: int = 0

    def __post_init__(self) -> None:
        check_range("older_than_s", self.older_than_s, 0)
        check_range("keep_last", self.keep_last, 0)


@wire
class Removable:
    """One item that may be removed."""

    kind: str
    name: str
    """A snapshot's digest, a checkpoint's id, or a name in the workspace store."""
    size: int
    at: float
    why: str


@wire
class RetentionReport:
    """What may be removed, or was."""

    dry_run: bool
    count: int
    size: int
    items: tuple[Removable, ...]
