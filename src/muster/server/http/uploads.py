"""Request bodies of any size, handed to a blocking consumer piece by piece."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


async def body_pieces(request: Request, consume: Callable[[Iterator[bytes]], T]) -> T:
    """Run `consume` in a thread over the body as it arrives; memory stays bounded."""
    pieces: queue.Queue[bytes | None] = queue.Queue(maxsize=8)
    broken: list[BaseException] = []

    def read() -> Iterator[bytes]:
        while (piece := pieces.get()) is not None:
            yield piece
        if broken:
            raise ConnectionError("the sender went away in the middle") from broken[0]

    worker = asyncio.create_task(asyncio.to_thread(consume, read()))

    async def put(piece: bytes | None) -> None:
        while not worker.done():
            try:
                pieces.put_nowait(piece)
                return
            except queue.Full:
                await asyncio.sleep(0.002)

    try:
        async for piece in request.stream():
            if piece:
                await put(piece)
    except BaseException as error:
        broken.append(error)
        raise
    finally:
        await put(None)
        if broken:
            await asyncio.gather(worker, return_exceptions=True)
    return await worker
