"""Reads the body of a request: no more than is allowed, and not from a client that is too slow."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Awaitable, Callable, List, Mapping

Receive = Callable[[], Awaitable[Any]]

_LEAST_RATE = 16 << 10
"""Bytes a second; a client that sends less than that after the first wait blocks others."""


class BadInput(ValueError):
    """A request that the model cannot accept: the client's fault."""


class Gone(Exception):
    """The client closed its connection."""


class TooLarge(Exception):
    """The body has more bytes than are accepted."""


class TooSlow(Exception):
    """The body does not arrive in time."""


async def body_of(receive: Receive, headers: Mapping[str, str], most: int, wait_s: float) -> bytes:
    """The whole body. A single piece, the usual case, is not copied.

    `wait_s`: how long to wait for it; each 16 kB received extend it by a second.
    """
    if _announced(headers) > most:
        raise TooLarge
    pieces: List[bytes] = []
    size = 0
    begun = time.monotonic()
    while True:
        left_s = begun + wait_s + size / _LEAST_RATE - time.monotonic()
        message = await _within(receive, left_s)
        if message["type"] != "http.request":
            raise Gone
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise TooLarge
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _within(receive: Receive, left_s: float) -> Any:
    """The next message; without a task of its own, since most bodies have arrived already when they are needed."""
    task: Any = asyncio.current_task()
    others = _cancels_of(task)
    is_late = False

    def ring() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    alarm = asyncio.get_running_loop().call_later(left_s, ring)
    try:
        return await receive()
    except asyncio.CancelledError:
        if not is_late:
            raise
        _take_back_cancel(task)
        if _cancels_of(task) > others:
            # Somebody else wants the request to end too, and has precedence.
            raise
        raise TooSlow from None
    finally:
        alarm.cancel()


def _cancels_of(task: Any) -> int:
    """How often a task was asked to end; Python before 3.11 does not count."""
    return int(task.cancelling()) if hasattr(task, "cancelling") else 0


def _take_back_cancel(task: Any) -> None:
    """Without this, an outer time limit (`asyncio.timeout`) takes the alarm for somebody else's cancellation."""
    if hasattr(task, "uncancel"):
        task.uncancel()


def _announced(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0
