"""Inputs in mode `stream`: what a node and the processes of a job tell each other, in files. Standard library only."""

from __future__ import annotations

from muster.wire.message import wire

LIST = ".muster.json"
FAILED = ".muster.failed"
LOCK = ".muster.lock"
INDEX_ENDING = ".json"
"""Files that say what others hold: they come before the job starts."""


@wire
class Coming:
    """The file `.muster.json` of such a folder."""

    files: tuple[tuple[str, int], ...]
    """Path and size of everything that is there or will be."""
    wishes: str
    """The file to which processes append what they need next, a `Wish` in each line."""


@wire
class Wish:
    """What a process needs next, in that order."""

    paths: tuple[str, ...]
