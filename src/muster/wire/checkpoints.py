"""Checkpoints, as agents publish and fetch them and as clients see them."""

from __future__ import annotations

import re

from muster.wire.data.access import HashedFile
from muster.wire.message import check_pattern, check_range, wire

_SHA256 = re.compile("[0-9a-f]{64}")


@wire
class CheckpointView:
    """A complete checkpoint of a run."""

    id: int
    attempt: int
    name: str
    size: int
    at: float


@wire
class Publication:
    """The body of `POST agents/NODE/checkpoints`: a checkpoint is complete, its files are in the store already."""

    run: str
    attempt: int
    name: str
    key: str
    at: float
    files: tuple[HashedFile, ...]

    def __post_init__(self) -> None:
        check_range("the length of name", len(self.name), 1, 255)
        check_pattern("key", self.key, _SHA256, "64 hexadecimal digits")
        for file in self.files:
            check_range("the size of a file", file.size, 0)
            check_pattern("sha256", file.sha256, _SHA256, "64 hexadecimal digits")


@wire
class Published:
    """The answer to a publication."""

    name: str


@wire
class CheckpointFile(HashedFile):
    """One file of a checkpoint that an attempt resumes from."""

    target: str
    """Its name when restored; where nodes wrote different content by one name, each is kept."""
    part: int
    """The node's publication that contains it."""
