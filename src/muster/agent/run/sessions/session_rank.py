"""Where a session takes place: one rank, as its keeper knows it."""

from __future__ import annotations

import os
from typing import NamedTuple


class Place(NamedTuple):
    """What of a rank somebody who enters gets."""

    rank: int
    env: dict[str, str]
    cwd: str
    pid: int | None
    """None: it has ended, or not begun."""


def place_of(rank: int, pid: int) -> Place:
    """A rank as its own process shows it: what it was started with, and where it is."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair]
        cwd = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    except OSError:
        return Place(rank, {}, "/", None)
    return Place(rank, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}, cwd, pid)
