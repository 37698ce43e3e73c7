"""Bytes piece by piece: read from files, counted and hashed on their way. Standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from muster.errors import JobError
from muster.store.parallel import Beside

_PIECE = 2 << 20
_HASHED_AT_ONCE = 1 << 19


class HashedPieces:
    """Pieces that are counted and hashed on their way; those of a large object are hashed while others are written."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._digest = hashlib.sha256()
        self._beside = Beside()
        self._waiting: list[bytes] = []
        self.size = 0

    def __enter__(self) -> HashedPieces:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.close()

    def __iter__(self) -> Iterator[bytes]:
        waiting = 0
        for piece in self._pieces:
            self.size += len(piece)
            self._waiting.append(piece)
            waiting += len(piece)
            if waiting >= _HASHED_AT_ONCE:
                self._beside.start(self._hash, self._waiting)
                self._waiting, waiting = [], 0
            yield piece

    def verify(self, name: str, wanted: str | None) -> None:
        """Refuse what is not what was announced, once all pieces have passed."""
        self._beside.wait()
        self._hash(self._waiting)
        self._waiting = []
        found = self._digest.hexdigest()
        if wanted is not None and found != wanted:
            raise JobError(f"{name} arrived damaged: sha256 {found}, expected {wanted}", "Send it again.")

    def _hash(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)


def pieces_of(file: BinaryIO, length: int | None = None) -> Iterator[bytes]:
    """A file in pieces of two megabytes, at most `length` bytes of it."""
    left = length
    while left is None or left > 0:
        piece = file.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece
