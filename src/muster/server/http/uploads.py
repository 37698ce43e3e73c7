"""Request bodies of any size, handed to a blocking consumer piece by piece.

Each gets a thread of its own, never one of those that health, heartbeats and submissions need, and their number is
bounded. A short body takes a thread only once it is complete, so slow senders cost only a little memory.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from fastapi import Request
from starlette.exceptions import HTTPException

from muster.server.context import Context

T = TypeVar("T")

_AHEAD_BYTES = 1 << 20
"""How much of a body is read before it takes a thread."""
_SLOT_S = 30.0
"""How long an upload waits for its turn before the client is asked to retry."""
_IDLE_S = 60.0
_LEAST_BYTES_PER_S = 1024


async def body_pieces(request: Request, consume: Callable[[Iterator[bytes]], T]) -> T:
    """Run `consume` in a thread over the body as it arrives; memory stays bounded."""
    incoming = _incoming_pieces(request)
    first, whole = await _read_ahead(incoming)
    uploads = cast(Context, request.app.state.context).data.uploads
    async with _slot(uploads.short if whole else uploads.long):
        if whole:
            return await in_thread(lambda: consume(iter(first)))
        return await _pump(first, incoming, consume)


async def in_thread(work: Callable[[], T]) -> T:
    """Run something slow in a thread of its own, outside the shared pool."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            _resolve(loop, done, error, None)
        else:
            _resolve(loop, done, None, result)

    threading.Thread(target=run, name="upload", daemon=True).start()
    return await asyncio.shield(done)


def _resolve(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], error: BaseException | None, result: T | None
) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The server has shut down meanwhile.
        return


async def _incoming_pieces(request: Request) -> AsyncIterator[bytes]:
    """The pieces of a body; raises when its sender stalls."""
    began, total = time.monotonic(), 0
    stream = aiter(request.stream())
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, b""), _IDLE_S)
        except TimeoutError:
            raise HTTPException(408, f"nothing was sent for {_IDLE_S:g} s") from None
        if not piece:
            # An empty piece ends a stream; the framework sends none before.
            return
        total += len(piece)
        if (lasted_s := time.monotonic() - began) > _IDLE_S and total < lasted_s * _LEAST_BYTES_PER_S:
            raise HTTPException(408, f"less than {_LEAST_BYTES_PER_S} bytes arrive in a second")
        yield piece


async def _read_ahead(incoming: AsyncIterator[bytes]) -> tuple[list[bytes], bool]:
    """The beginning of a body, and whether that is all of it."""
    found: list[bytes] = []
    size = 0
    async for piece in incoming:
        found.append(piece)
        size += len(piece)
        if size >= _AHEAD_BYTES:
            return found, False
    return found, True


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        await asyncio.wait_for(slots.acquire(), _SLOT_S)
    except TimeoutError:
        raise HTTPException(503, "too many uploads are under way", {"Retry-After": "5"}) from None
    try:
        yield
    finally:
        slots.release()


async def _pump(first: list[bytes], incoming: AsyncIterator[bytes], consume: Callable[[Iterator[bytes]], T]) -> T:
    pieces: queue.Queue[bytes | None] = queue.Queue(maxsize=8)
    broken: list[BaseException] = []

    def read() -> Iterator[bytes]:
        yield from first
        while (piece := pieces.get()) is not None:
            yield piece
        if broken:
            raise ConnectionError("the sender went away in the middle") from broken[0]

    worker = asyncio.create_task(in_thread(lambda: consume(read())))

    async def put(piece: bytes | None) -> None:
        while not worker.done():
            try:
                pieces.put_nowait(piece)
                return
            except queue.Full:
                await asyncio.sleep(0.002)

    try:
        async for piece in incoming:
            await put(piece)
    except BaseException as error:
        broken.append(error)
        raise
    finally:
        await put(None)
        if broken:
            await asyncio.gather(worker, return_exceptions=True)
    return await worker
