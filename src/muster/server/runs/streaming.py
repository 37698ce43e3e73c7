"""Server-sent events of a run: states, ranks, notes, metrics and what the ranks print."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, func, select

from muster import errors
from muster.defaults import STREAM_KEEPALIVE_S
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import RunRow
from muster.server.hub import wait_at_most
from muster.server.logs.cursor import Cursor
from muster.server.logs.matching import Matcher
from muster.server.logs.reader import LogReader
from muster.server.runs.views import doing, load_progress, reason, verdict_of
from muster.server.tracking.reading import last_order, points_after
from muster.store.arrivals import Log
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.runs import Progress
from muster.wire.stream import (
    LogQuery,
    MetricLogged,
    ProgressMade,
    RunEnded,
    StateChanged,
    StreamEvent,
    StreamRefused,
    decode_event,
)

_LONG = (states.QUEUED, states.PREPARING, states.FINALIZING)
_ROWS_PER_ROUND = 1000
_ROUND_S = 0.02
_PROGRESS_S = 0.5
_KEEPALIVE = ": keepalive\n\n"

T = TypeVar("T")


@dataclass
class _Round:
    """One poll of the run."""

    row: RunRow
    events: list[tuple[int, StreamEvent]]
    metrics: list[tuple[int, MetricLogged]]
    progress: list[Progress]
    of_rank: frozenset[Log]
    """The logs of the requested rank."""


@dataclass
class Follower:
    """A follower of a run: what was read so far, and what was last sent of events without a cursor."""

    context: Context
    reader: LogReader
    beginning: Iterator[bool]
    doing: str = ""
    progress: dict[int | None, Progress] = field(default_factory=dict)
    progress_at: float = 0.0
    is_begun: bool = False

    @property
    def cursor(self) -> Cursor:
        return self.reader.cursor

    def begin(self) -> bool:
        """Go on searching for the starting point; returns whether it is found. Reads files."""
        self.is_begun = self.is_begun or next(self.beginning)
        return self.is_begun

    def wants_progress(self, row: RunRow) -> bool:
        """Whether it is time to read each rank's progress again: a thousand ranks are a thousand rows."""
        now = time.monotonic()
        if now < self.progress_at + _PROGRESS_S and row.status not in states.TERMINAL:
            return False
        self.progress_at = now
        return True

    def recorded(self, found: _Round) -> Iterator[str]:
        """New events and metrics, which the database keeps in order."""
        for number, event in found.events:
            self.cursor.event = number
            if isinstance(event, StateChanged) and event.status == found.row.status:
                event = replace(event, reason=reason(self.context, found.row))
            yield self.text(event)
        for number, point in found.metrics:
            self.cursor.metric = number
            yield self.text(point)

    def passing(self, found: _Round) -> Iterator[str]:
        """Transient state: what nodes are doing, and how far each rank is."""
        row = found.row
        if row.status in _LONG and (what := doing(self.context, row.id)) not in ("", self.doing):
            self.doing = what
            yield self.text(StateChanged(row.status, time.time(), what))
        for item in found.progress:
            if self.progress.get(item.rank) != item:
                self.progress[item.rank] = item
                yield self.text(ProgressMade(item.done, item.total, item.unit, item.rank))

    def printed(self, found: _Round) -> str:
        """New output of logs, in order of arrival. Reads files: not for the event loop."""
        self.reader.of_rank = found.of_rank
        return "".join(self.text(piece) for piece in self.reader.read())

    def ended(self) -> str:
        """The rest of the logs when nothing more will come, or is wanted. Reads files."""
        reader = self.reader
        attempts = {log.attempt for log in reader.files.arrivals.lengths(reader.run_id)}
        reader.files.arrivals.catch_up(reader.run_id, attempts)
        found: list[str] = []
        while reader.is_behind:
            found += [self.text(piece) for piece in reader.read()]
        return "".join(found) + "".join(self.text(piece) for piece in reader.ends())

    def text(self, event: StreamEvent) -> str:
        return f"event: {event.kind}\nid: {self.cursor.encode()}\ndata: {json.dumps(to_json(event))}\n\n"


async def open_stream(context: Context, run_id: str, cursor: Cursor, query: LogQuery) -> Follower:
    """A follower that is about to begin; refuses an invalid cursor or pattern."""
    if query.ago_s is not None:
        query = replace(query, since=time.time() - query.ago_s, ago_s=None)
    newest = await context.database.read(lambda c: _newest(c, run_id))
    is_fresh = cursor == Cursor()
    # A follower with a cursor goes on; what the index missed is searched for once more at the end of the run.
    attempts = range(1, newest.attempt + 1) if is_fresh else ()
    follower = await _in_thread(context, lambda: _open(context, run_id, cursor, query, attempts))
    if is_fresh and (query.tail is not None or query.since is not None):
        # A follower of the latest lines wants events from now on.
        cursor.event, cursor.metric = newest.event, newest.metric
    return follower


async def follow(follower: Follower, *, follow: bool, logs: bool, metrics: bool) -> AsyncIterator[str]:
    """The run's events from the cursor on, until it has ended (or, without `follow`, until now)."""
    context, run_id, reader = follower.context, follower.reader.run_id, follower.reader
    try:
        while logs and not await _in_thread(context, follower.begin):
            yield _KEEPALIVE
        with context.hub.watch_run(run_id) as changed:
            while True:
                changed.clear()
                async with context.hub.followers:
                    found = await context.database.read(lambda c: _poll(c, follower, metrics))
                # Sent in one piece: a thousand ranks are a thousand events.
                yield "".join((*follower.recorded(found), *follower.passing(found))) or _KEEPALIVE
                if logs and (text := await _in_thread(context, partial(follower.printed, found))):
                    yield text
                if reader.done:
                    return
                if found.events or found.metrics or (logs and await _in_thread(context, lambda: reader.is_behind)):
                    continue
                is_over = found.row.status in states.TERMINAL
                if logs and (is_over or not follow) and (text := await _in_thread(context, follower.ended)):
                    yield text
                if is_over:
                    yield follower.text(RunEnded(found.row.status, verdict_of(found.row)))
                if is_over or not follow or context.hub.closing:
                    return
                # Many nodes deliver many times a second; no one reads that fast.
                await asyncio.sleep(_ROUND_S)
                await wait_at_most(changed, STREAM_KEEPALIVE_S)
    except errors.UserError as error:
        yield follower.text(StreamRefused(error.message, error.hint, error.code))
    finally:
        reader.close()


@dataclass(frozen=True)
class _Newest:
    """The latest ids of a run."""

    attempt: int
    event: int
    metric: int


def _newest(connection: Connection, run_id: str) -> _Newest:
    attempt = connection.execute(select(tables.runs.c.attempt).where(tables.runs.c.id == run_id)).scalar()
    events = tables.events
    event = connection.execute(select(func.max(events.c.id)).where(events.c.run_id == run_id)).scalar()
    return _Newest(attempt or 0, event or 0, last_order(connection, run_id))


def _open(context: Context, run_id: str, cursor: Cursor, query: LogQuery, attempts: Iterable[int]) -> Follower:
    matcher = Matcher(query.grep) if query.grep else None
    reader = LogReader(context.files, run_id, query, cursor, matcher)
    try:
        context.files.arrivals.catch_up(run_id, attempts)
        if query.rank is not None:
            reader.of_rank = context.database.read_now(lambda c: _logs_of(c, run_id, query.rank))
        follower = Follower(context, reader, reader.begin())
        follower.begin()
    except BaseException:
        reader.close()
        raise
    return follower


async def _in_thread(context: Context, work: Callable[[], T]) -> T:
    """Read files in a thread, of which followers never take all: the database needs some too."""
    async with context.runs.reading:
        return await asyncio.to_thread(work)


def _poll(connection: Connection, follower: Follower, metrics: bool) -> _Round:
    run_id, cursor, query = follower.reader.run_id, follower.reader.cursor, follower.reader.query
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).first()
    if row is None:
        raise errors.NotFound(f"the run {run_id} was removed")
    events = _events_after(connection, run_id, cursor.event)
    points = points_after(connection, run_id, cursor.metric, _ROWS_PER_ROUND) if metrics else ()
    return _Round(
        row,
        [(item.id, decode_event(item.kind, {**item.data, "at": item.at})) for item in events],
        [(order, MetricLogged(**vars(point))) for order, point in points],
        load_progress(connection, [run_id]).get(run_id, []) if follower.wants_progress(row) else [],
        _logs_of(connection, run_id, query.rank) if query.rank is not None else frozenset(),
    )


def _logs_of(connection: Connection, run_id: str, rank: int | None) -> frozenset[Log]:
    """The logs of a rank in all attempts."""
    ranks = tables.ranks
    mine = select(ranks.c.number, ranks.c.log).where(ranks.c.run_id == run_id, ranks.c.rank == rank)
    return frozenset(Log(row.number, row.log) for row in connection.execute(mine))


def _events_after(connection: Connection, run_id: str, last: int) -> Sequence[Row[Any]]:
    """The events of a run after the last one that was sent, at most as many as one round sends."""
    table = tables.events
    query = select(table).where(table.c.run_id == run_id, table.c.id > last).order_by(table.c.id)
    return connection.execute(query.limit(_ROWS_PER_ROUND)).all()
