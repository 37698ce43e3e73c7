"""Reads wait for earlier writes: a rank that logs and then reads finds what it logged."""

from __future__ import annotations

import asyncio
import time

from sqlalchemy import Connection, select

from muster.server.context import Context
from muster.server.database import tables
from muster.server.hub import wait_at_most

_PATIENCE_S = 20.0
_LOOK_S = 0.25


async def for_events(context: Context, run_id: str, attempt: int, lengths: str) -> None:
    """Wait until the given bytes of each event stream (`STREAM=BYTES,…`) are processed, or until a deadline."""
    wanted = {}
    for part in lengths.split(","):
        stream, _, length = part.rpartition("=")
        if stream and length.isdecimal():
            wanted[stream] = int(length)
    deadline = time.monotonic() + _PATIENCE_S
    with context.hub.watch_run(run_id) as changed:
        while wanted and time.monotonic() < deadline:
            changed.clear()
            taken = await context.database.read(lambda c: _taken_in(c, run_id, attempt))
            wanted = {stream: length for stream, length in wanted.items() if taken.get(stream, 0) < length}
            if wanted:
                await wait_at_most(changed, _LOOK_S)
                await asyncio.sleep(0)


def _taken_in(connection: Connection, run_id: str, attempt: int) -> dict[str, int]:
    streams = tables.streams
    mine = (streams.c.run_id == run_id, streams.c.attempt == attempt)
    rows = connection.execute(select(streams.c.stream, streams.c.parsed).where(*mine)).all()
    return {str(row.stream): int(row.parsed) for row in rows}
