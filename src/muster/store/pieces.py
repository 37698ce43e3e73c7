"""Bytes piece by piece: read from files, counted and hashed in passing. Standard library only."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from muster.errors import JobError

_CALLS_AHEAD = 2
_PIECE = 2 << 20
_HASHED_AT_ONCE = 1 << 19


class BackgroundThread:
    """One thread that makes calls in order, on another processor: started by the first call, ended by `close`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._calls: deque[Future[Any]] = deque()

    def start(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Make a call soon; waits while two others are pending. Raises the error of an earlier call."""
        while len(self._calls) >= _CALLS_AHEAD:
            self._calls.popleft().result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "background")
        self._calls.append(self._pool.submit(call, *arguments))

    def wait(self) -> None:
        """Wait until all calls have ended; raises the error of any."""
        while self._calls:
            self._calls.popleft().result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class HashedPieces:
    """Pieces that are counted and hashed in passing; those of a large object are hashed while others are written."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._digest = hashlib.sha256()
        self._background = BackgroundThread()
        self._waiting: list[bytes] = []
        self.size = 0

    def __enter__(self) -> HashedPieces:
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def __iter__(self) -> Iterator[bytes]:
        waiting = 0
        for piece in self._pieces:
            self.size += len(piece)
            self._waiting.append(piece)
            waiting += len(piece)
            if waiting >= _HASHED_AT_ONCE:
                self._background.start(self._hash, self._waiting)
                self._waiting, waiting = [], 0
            yield piece

    def verify(self, name: str, wanted: str | None) -> None:
        """Refuse content other than announced, once all pieces have passed."""
        self._background.wait()
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
