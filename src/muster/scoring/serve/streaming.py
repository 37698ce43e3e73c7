"""Answers in pieces: what `run()` yields reaches the client as it is made."""

from __future__ import annotations

import asyncio
import collections.abc
import json
import threading
import time
import traceback
from collections import deque
from typing import Any, AsyncIterator, Deque, Iterator, Mapping, Optional, Tuple

from muster.scoring.serve.http import AMLResponse, json_value

_MOST_WAITING = 64
"""How many pieces a client may leave unread before the model waits for it."""
_LOOK_S = 0.1
_END, _BROKEN = object(), object()


class Broken(Exception):
    """The rest of an answer does not come: `run()` raised, or the client read nothing for too long."""


class Stream:
    """One answer on its way from the model's thread to the listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pieces: Iterator[Any], given: Any, patience_s: float) -> None:
        self._loop = loop
        self._pieces = pieces
        self._patience_s = patience_s
        self._ready: Deque[Any] = deque()
        """Used on the event loop only."""
        self._waiter: "Optional[asyncio.Future[None]]" = None
        self._room = threading.Semaphore(_MOST_WAITING)
        self._closed = threading.Event()
        # A failure before the first piece is an error like any other.
        self._first = next(pieces, b"")
        kind, _ = _encoded(self._first)
        self.status = int(getattr(given, "status_code", 200))
        self.headers: Mapping[str, str] = {
            "content-type": kind,
            **{name.lower(): value for name, value in dict(getattr(given, "response_headers", {})).items()},
        }

    def pump(self) -> None:
        """In the model's thread: hand over piece after piece, no faster than the client reads them."""
        last = _BROKEN
        try:
            piece: Any = self._first
            while self._has_room():
                self._put(_encoded(piece)[1])
                try:
                    piece = next(self._pieces)
                except StopIteration:
                    last = _END
                    return
        except BaseException:
            # Also for a script's own exit: the thread is needed for the next request.
            traceback.print_exc()
        finally:
            self._put(last)
            self._end_pieces()

    def _end_pieces(self) -> None:
        try:
            getattr(self._pieces, "close", lambda: None)()
        except BaseException:
            traceback.print_exc()

    async def taken(self) -> AsyncIterator[bytes]:
        """On the event loop: the pieces; raises Broken if the rest does not come."""
        while True:
            if not self._ready:
                self._waiter = self._loop.create_future()
                await self._waiter
            piece = self._ready.popleft()
            self._room.release()
            if piece is _END:
                return
            if piece is _BROKEN:
                raise Broken
            yield piece

    def close(self) -> None:
        """Nobody reads the rest."""
        self._closed.set()

    def _put(self, piece: Any) -> None:
        self._loop.call_soon_threadsafe(self._arrive, piece)

    def _arrive(self, piece: Any) -> None:
        self._ready.append(piece)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_room(self) -> bool:
        deadline = time.monotonic() + self._patience_s
        while not self._closed.is_set():
            if self._room.acquire(timeout=_LOOK_S):
                return True
            if time.monotonic() >= deadline:
                break
        return False


def pieces_of(result: Any) -> Optional[Iterator[Any]]:
    """The pieces that a result yields, also as the message of an `AMLResponse`; None if it is one complete answer."""
    inner = result.message if isinstance(result, AMLResponse) or hasattr(result, "response_headers") else result
    return inner if isinstance(inner, collections.abc.Iterator) else None


def _encoded(piece: Any) -> Tuple[str, bytes]:
    """A piece with its content type: bytes and text as they are, anything else as a line of JSON."""
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(piece)
    if isinstance(piece, str):
        return "text/plain; charset=utf-8", piece.encode()
    return "application/x-ndjson", json.dumps(piece, default=json_value).encode() + b"\n"
