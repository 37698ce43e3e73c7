"""The rank that a session runs in, as its keeper knows it."""

from __future__ import annotations

import os
from typing import NamedTuple


class SessionRank(NamedTuple):
    """What a session gets of its rank."""

    rank: int
    env: dict[str, str]
    cwd: str
    pid: int | None
    """None: it has ended, or has not begun."""


def session_rank_of(rank: int, pid: int) -> SessionRank:
    """A rank as its own process shows it: its environment and its working folder."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair]
        cwd = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    except OSError:
        return SessionRank(rank, {}, "/", None)
    return SessionRank(rank, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}, cwd, pid)
