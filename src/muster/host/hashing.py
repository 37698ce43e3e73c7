"""SHA-256 of files and of streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple


class Measured(NamedTuple):
    """The hash and the size of some content."""

    sha256: str
    size: int


def sha256_of(path: Path) -> str:
    """A file's hash."""
    return measure(path).sha256


def measure(path: Path) -> Measured:
    """A file's hash and size, both of the same bytes, even if it grows meanwhile."""
    with path.open("rb") as file:
        return measure_open(file)


def measure_open(file: BufferedReader) -> Measured:
    """The hash and size of an open file, from its start, whatever was read of it."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")
    return Measured(digest.hexdigest(), file.tell())


class Measuring:
    """Computes hash and size of bytes that are streamed elsewhere."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        self._digest.update(piece)
        self.size += len(piece)

    def passing(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Pass pieces through, measuring each."""
        for piece in pieces:
            self.add(piece)
            yield piece


def measure_pieces(pieces: Iterable[bytes]) -> Measured:
    """The hash and size of pieces that are otherwise discarded."""
    measuring = Measuring()
    for piece in pieces:
        measuring.add(piece)
    return Measured(measuring.sha256, measuring.size)
