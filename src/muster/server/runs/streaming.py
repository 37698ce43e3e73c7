"""Server-sent events of a run: states, ranks, notes, metrics and what the ranks print."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import RunRow
from muster.server.runs.views import doing, reason
from muster.wire import states

_LONG = (states.PREPARING, states.FINALIZING)
_KEEPALIVE_S = 10.0
_LOG_PIECE = 256 << 10
_LOG_ROUND = 2 << 20


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
            return cls(int(data["event"]), int(data["metric"]), {str(k): int(v) for k, v in data["logs"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise errors.JobError(
                f"{text!r} is no cursor of a stream", "Send the last `id:` back as it came."
            ) from None


@dataclass
class _Round:
    """One look at the run."""

    row: RunRow
    events: list[Any]
    metrics: list[Any]


async def follow(
    context: Context, run_id: str, cursor: Cursor, *, follow: bool, logs: bool, metrics: bool
) -> AsyncIterator[str]:
    """The run's events from the cursor on, until it has ended (or, without `follow`, until now)."""
    waiter = context.hub.watch_run(run_id)
    progress: Any = None
    said = ""
    try:
        while True:
            waiter.clear()
            found = await context.database.read(lambda c: _look(c, run_id, cursor, metrics))
            quiet = True
            for row in found.events:
                cursor.event = row.id
                quiet = False
                data = {**row.data, "at": row.at}
                if row.kind == "state":
                    data["reason"] = reason(context, found.row) if row.data["status"] == found.row.status else ""
                yield _event(row.kind, cursor, data)
            for row in found.metrics:
                cursor.metric = row.id
                quiet = False
                yield _event("metric", cursor, metric_json(row))
            if found.row.status in _LONG and (why := doing(context, run_id)) not in ("", said):
                said = why
                yield _event("state", cursor, {"status": found.row.status, "reason": why, "at": time.time()})
            if found.row.progress and found.row.progress != progress:
                progress = found.row.progress
                yield _event("progress", cursor, progress)
            if logs:
                for key, end, piece in _log_pieces(context, found.row, cursor):
                    cursor.logs[key] = end
                    quiet = False
                    yield _event("log", cursor, piece)
            if not quiet:
                continue
            if found.row.status in states.TERMINAL:
                yield _event("end", cursor, {"status": found.row.status, "verdict": found.row.verdict})
                return
            if not follow or context.hub.closing:
                return
            await context.hub.wait_run(run_id, waiter, _KEEPALIVE_S)
            yield ": keepalive\n\n"
    finally:
        context.hub.unwatch_run(run_id, waiter)


def _look(connection: Connection, run_id: str, cursor: Cursor, metrics: bool) -> _Round:
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).first()
    if row is None:
        raise errors.NotFound(f"the run {run_id} was removed")
    events = connection.execute(
        select(tables.events)
        .where(tables.events.c.run_id == run_id, tables.events.c.id > cursor.event)
        .order_by(tables.events.c.id)
        .limit(500)
    ).all()
    points: list[Any] = []
    if metrics:
        points = list(
            connection.execute(
                select(tables.metrics)
                .where(tables.metrics.c.run_id == run_id, tables.metrics.c.id > cursor.metric)
                .order_by(tables.metrics.c.id)
                .limit(1000)
            ).all()
        )
    return _Round(row, list(events), points)


def _log_pieces(context: Context, row: RunRow, cursor: Cursor) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Bytes that are new, taken from all ranks in turn."""
    total = 0
    for attempt in range(1, row.attempt + 1):
        for stream, size in context.streams.names(row.id, attempt):
            if not stream.startswith("user_logs/"):
                continue
            key = f"{attempt}/{stream}"
            offset = cursor.logs.get(key, 0)
            if size <= offset or total >= _LOG_ROUND:
                continue
            data = context.streams.read(row.id, attempt, stream, offset, _LOG_PIECE)
            total += len(data)
            encoded = base64.b64encode(data).decode()
            piece = {"attempt": attempt, "stream": stream, "offset": offset, "base64": encoded}
            yield key, offset + len(data), piece


def metric_json(row: Any) -> dict[str, Any]:
    rank = row.source.removeprefix("rank_")
    return {
        "name": row.name,
        "value": row.value,
        "step": row.step,
        "rank": int(rank) if rank.isdigit() else None,
        "source": row.source,
        "type": row.type,
        "at": row.at,
        "attempt": row.attempt,
    }


def _event(kind: str, cursor: Cursor, data: Any) -> str:
    return f"event: {kind}\nid: {cursor.encode()}\ndata: {json.dumps(data)}\n\n"
