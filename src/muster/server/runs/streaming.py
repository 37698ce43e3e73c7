"""Server-sent events of a run: states, ranks, notes, metrics and what the ranks print."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, Table, select

from muster import errors
from muster.defaults import STREAM_KEEPALIVE_S
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import RunRow
from muster.server.hub import wait_at_most
from muster.server.runs.views import doing, load_progress, metric_point, reason, verdict_of
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.runs import Progress
from muster.wire.stream import (
    LogPiece,
    MetricLogged,
    ProgressMade,
    RunEnded,
    StateChanged,
    StreamEvent,
    decode_event,
)

_LONG = (states.PREPARING, states.FINALIZING)
_LOG_PIECE = 256 << 10
_LOG_ROUND = 2 << 20
_ROWS_PER_ROUND = 1000


@dataclass
class Cursor:
    """How far a follower has come; goes with every event, so that it can go on from there."""

    event: int = 0
    metric: int = 0
    logs: dict[str, int] = field(default_factory=dict)
    """`attempt/stream` to offset."""

    def encode(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self), separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str | None) -> Cursor:
        if not text:
            return cls()
        try:
            data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            made = cls(int(data["event"]), int(data["metric"]), {str(k): int(v) for k, v in data["logs"].items()})
            if not all(0 <= item < 1 << 63 for item in (made.event, made.metric, *made.logs.values())):
                raise ValueError
            return made
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            raise errors.JobError(
                f"{text!r} is no cursor of a stream", "Send the last `id:` back as it came."
            ) from None


@dataclass
class _Round:
    """One look at the run."""

    row: RunRow
    events: list[tuple[int, StreamEvent]]
    metrics: list[tuple[int, MetricLogged]]
    progress: list[Progress]


@dataclass
class _Follower:
    """Somebody who follows a run: what was said of what carries no cursor."""

    context: Context
    cursor: Cursor
    doing: str = ""
    progress: dict[int | None, Progress] = field(default_factory=dict)

    def recorded(self, found: _Round) -> Iterator[str]:
        """What the database keeps in order: events and metrics."""
        for self.cursor.event, event in found.events:
            if isinstance(event, StateChanged) and event.status == found.row.status:
                event = replace(event, reason=reason(self.context, found.row))
            yield self.text(event)
        for self.cursor.metric, point in found.metrics:
            yield self.text(point)

    def passing(self, found: _Round) -> Iterator[str]:
        """What is true for a moment: what nodes are doing, and how far each rank is."""
        row = found.row
        if row.status in _LONG and (what := doing(self.context, row.id)) not in ("", self.doing):
            self.doing = what
            yield self.text(StateChanged(row.status, time.time(), what))
        for item in found.progress:
            if self.progress.get(item.rank) != item:
                self.progress[item.rank] = item
                yield self.text(ProgressMade(item.done, item.total, item.unit, item.rank))

    def printed(self, row: RunRow) -> list[str]:
        """Bytes of logs that are new, taken from all ranks in turn. Reads files: not for the event loop."""
        found: list[str] = []
        total = 0
        for attempt in range(1, row.attempt + 1):
            for stream, size in self.context.files.streams.names(row.id, attempt):
                key = f"{attempt}/{stream}"
                offset = self.cursor.logs.get(key, 0)
                if not stream.startswith("user_logs/") or size <= offset or total >= _LOG_ROUND:
                    continue
                data = self.context.files.streams.read(row.id, attempt, stream, offset, _LOG_PIECE)
                total += len(data)
                self.cursor.logs[key] = offset + len(data)
                found.append(self.text(LogPiece.of(attempt, stream, offset, data)))
        return found

    def text(self, event: StreamEvent) -> str:
        return f"event: {event.kind}\nid: {self.cursor.encode()}\ndata: {json.dumps(to_json(event))}\n\n"


async def follow(
    context: Context, run_id: str, cursor: Cursor, *, follow: bool, logs: bool, metrics: bool
) -> AsyncIterator[str]:
    """The run's events from the cursor on, until it has ended (or, without `follow`, until now)."""
    follower = _Follower(context, cursor)
    with context.hub.watch_run(run_id) as changed:
        while True:
            changed.clear()
            async with context.hub.followers:
                found = await context.database.read(lambda c: _look(c, run_id, cursor, metrics))
                printed = await asyncio.to_thread(follower.printed, found.row) if logs else ()
            quiet = not found.events and not found.metrics
            for text in (*follower.recorded(found), *follower.passing(found)):
                yield text
            for text in printed:
                quiet = False
                yield text
            if not quiet:
                continue
            if found.row.status in states.TERMINAL:
                yield follower.text(RunEnded(found.row.status, verdict_of(found.row)))
                return
            if not follow or context.hub.closing:
                return
            await wait_at_most(changed, STREAM_KEEPALIVE_S)
            yield ": keepalive\n\n"


def _look(connection: Connection, run_id: str, cursor: Cursor, metrics: bool) -> _Round:
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).first()
    if row is None:
        raise errors.NotFound(f"the run {run_id} was removed")
    events = _after(connection, tables.events, run_id, cursor.event)
    points = _after(connection, tables.metrics, run_id, cursor.metric) if metrics else ()
    return _Round(
        row,
        [(item.id, decode_event(item.kind, {**item.data, "at": item.at})) for item in events],
        [(item.id, metric_point(MetricLogged, item)) for item in points],
        load_progress(connection, [run_id]).get(run_id, []),
    )


def _after(connection: Connection, table: Table, run_id: str, last: int) -> Sequence[Row[Any]]:
    """The rows of a run that came after the last one that was sent, as many as one round takes."""
    query = select(table).where(table.c.run_id == run_id, table.c.id > last).order_by(table.c.id)
    return connection.execute(query.limit(_ROWS_PER_ROUND)).all()
