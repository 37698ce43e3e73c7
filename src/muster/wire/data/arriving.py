"""Inputs in mode `stream`: files by which a node and the processes of a job communicate. Standard library only."""

from __future__ import annotations

from muster.wire.message import wire

LIST = ".muster.json"
FAILED = ".muster.failed"
LOCK = ".muster.lock"
INDEX_ENDING = ".json"
"""Index files, which describe other files: they are fetched before the job starts."""


@wire
class Coming:
    """The file `.muster.json` of such a folder."""

    files: tuple[tuple[str, int], ...]
    """Path and size of every file that is there or will arrive."""
    wishes: str
    """The file to which processes append what they need next, a `Wish` in each line."""


@wire
class Wish:
    """The files that a process needs next, in order."""

    paths: tuple[str, ...]
