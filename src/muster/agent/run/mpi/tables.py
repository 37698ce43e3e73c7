"""What the small programs around mpirun read from files: the commands of a node's ranks, and where the other nodes are.

Only types: the programs do not import this, because they are in the way of every rank.
"""

from __future__ import annotations

from typing import TypedDict


class RankCommand(TypedDict):
    """What one rank runs."""

    argv: list[str]
    expand: bool
    env: dict[str, str]
    cwd: str
    log: str


class RankTable(TypedDict):
    """The ranks of a node, for `rank.py`."""

    name: str
    fifo: str
    stop_file: str
    library: str
    ranks: dict[str, RankCommand]


class RemoteTable(TypedDict):
    """The nodes of a job, for `remote.py`."""

    secret: str
    fifo: str
    hosts: dict[str, tuple[str, int]]
