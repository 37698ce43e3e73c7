"""What scripts log: lines of event streams become metrics, tags, progress and models, each once."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import DataError, IntegrityError

from muster.control.datawait import COMPUTE_METRIC, DATA_METRIC, advice
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event, add_note, upsert
from muster.server.models import registry
from muster.store.streams import Streams
from muster.wire.codec import Json, to_json
from muster.wire.runs import MetricPoint, Progress
from muster.wire.stream import Note

_LIMIT_BYTES = 8 << 20
_ADD_METRICS = insert(tables.metrics)

UNUSABLE = (DataError, IntegrityError, KeyError, TypeError, ValueError, AttributeError)
"""What is raised for something that cannot be recorded, today or tomorrow."""


def parse_events(
    context: Context, transaction: Transaction, run_id: str, attempt: int, stream: str, singly: bool = False
) -> None:
    """Take in what is new of an attempt's events."""
    parse_stream(context.files.streams, transaction, run_id, attempt, stream, singly)


def parse_stream(
    stored: Streams, transaction: Transaction, run_id: str, attempt: int, stream: str, singly: bool = False
) -> None:
    """Take in the complete lines that are new, with `singly` without those that cannot be recorded.

    The offset reached is committed with them.
    """
    streams = tables.streams
    where = (streams.c.run_id == run_id, streams.c.attempt == attempt, streams.c.stream == stream)
    parsed = transaction.execute(select(streams.c.parsed).where(*where)).scalar() or 0
    while True:
        data = stored.read(run_id, attempt, stream, parsed, _LIMIT_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            # A line longer than the limit is passed over; otherwise the rest of it is still to come.
            if len(data) < _LIMIT_BYTES:
                return
            whole = data
        apply = _apply_singly if singly else _apply
        apply(transaction, run_id, attempt, stream, whole.splitlines())
        parsed += len(whole)
        upsert(transaction, streams, {"run_id": run_id, "attempt": attempt, "stream": stream, "parsed": parsed})


def add_points(transaction: Transaction, run_id: str, points: Sequence[MetricPoint]) -> None:
    """Record points of metrics."""
    if not points:
        return
    rows = [
        {
            "run_id": run_id,
            "attempt": item.attempt,
            "source": item.source[:255],
            "name": item.name[:255],
            "type": item.type[:16],
            "value": item.value,
            "step": item.step,
            "at": item.at,
        }
        for item in points
    ]
    transaction.execute(_ADD_METRICS, rows)


def rank_of(source: str) -> int | None:
    """The rank that logged something; None for a node or a client."""
    rank = source.removeprefix("rank_")
    return int(rank) if rank.isdigit() else None


def finite(value: Json) -> Json:
    """The value with numbers that JSON lacks as the texts that the in-run API writes for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value


def _apply_singly(transaction: Transaction, run_id: str, attempt: int, stream: str, lines: list[bytes]) -> None:
    unusable = 0
    for line in lines:
        try:
            with transaction.connection.begin_nested():
                _apply(transaction, run_id, attempt, stream, [line])
        except UNUSABLE:
            unusable += 1
    if unusable:
        text = f"{unusable} of what {stream} logged cannot be recorded, and is left out"
        add_note(transaction, run_id, "warning", text)


def _apply(transaction: Transaction, run_id: str, attempt: int, stream: str, lines: list[bytes]) -> None:
    points: list[MetricPoint] = []
    tags: dict[str, str] = {}
    progress: Progress | None = None
    source = stream.removeprefix("events/").removesuffix(".jsonl")
    for line in lines:
        item = _read(line)
        kind, name = item.get("kind"), item.get("name")
        if kind == "metric" and isinstance(name, str):
            points.append(_point(attempt, source, name, item))
        elif kind == "tag":
            tags[str(name)] = str(item.get("value"))
        elif kind == "progress":
            progress = _progress(item) or progress
        elif kind == "lost":
            _note_lost(transaction, run_id, source, item)
        elif kind == "model" and name:
            _add_model(transaction, run_id, str(name), item)
    add_points(transaction, run_id, points)
    _advise_on_data_wait(transaction, run_id, attempt, points)
    if tags:
        known = transaction.execute(select(tables.runs.c.tags).where(tables.runs.c.id == run_id)).scalar() or {}
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(tags={**known, **tags}))
    rank = rank_of(source)
    if progress is not None and rank is not None:
        row = {"run_id": run_id, "attempt": attempt, **to_json(replace(progress, rank=rank))}
        upsert(transaction, tables.progress, row, newer="attempt")


def _note_lost(transaction: Transaction, run_id: str, source: str, item: Mapping[str, Json]) -> None:
    """Keep on the run that a script logged what its node's disk had no room for."""
    count = int(_number(item.get("count")) or 0)
    if count > 0:
        what = "event" if count == 1 else "events"
        text = (
            f"{source.replace('_', ' ')} logged {count:,} {what} that could not be written and are missing (disk full?)"
        )
        notices = transaction.execute(select(tables.runs.c.notices).where(tables.runs.c.id == run_id)).scalar() or []
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(notices=[*notices, text]))
        add_note(transaction, run_id, "error", text)


def _advise_on_data_wait(transaction: Transaction, run_id: str, attempt: int, points: Sequence[MetricPoint]) -> None:
    """Say, once in each attempt, that a run waits for data more than it computes."""
    if not any(point.name == DATA_METRIC for point in points):
        return
    source = points[-1].source
    data_s, compute_s = (_last(transaction, run_id, attempt, source, name) for name in (DATA_METRIC, COMPUTE_METRIC))
    if data_s is None or compute_s is None:
        return
    text = advice(data_s, compute_s)
    events = tables.events
    notes = select(events.c.data).where(events.c.run_id == run_id, events.c.kind == Note.kind)
    if text and all(data.get("data_wait") != attempt for data in transaction.execute(notes).scalars()):
        note = Note("warning", f"{source.replace('_', ' ')} {text}", time.time(), attempt)
        add_event(transaction, run_id, note)


def _last(transaction: Transaction, run_id: str, attempt: int, source: str, name: str) -> float | None:
    metrics = tables.metrics
    mine = (metrics.c.run_id == run_id, metrics.c.attempt == attempt, metrics.c.source == source)
    newest = select(metrics.c.value).where(*mine, metrics.c.name == name).order_by(metrics.c.id.desc()).limit(1)
    return _number(transaction.execute(newest).scalar())


def _read(line: bytes) -> Mapping[str, Json]:
    """A line as a mapping; what is not one is passed over, since scripts may write there too."""
    try:
        item = json.loads(line)
    except ValueError:
        return {}
    return item if isinstance(item, dict) else {}


def _point(attempt: int, source: str, name: str, item: Mapping[str, Json]) -> MetricPoint:
    return MetricPoint(
        name=name,
        value=finite(item.get("value")),
        step=_number(item.get("step")),
        rank=rank_of(source),
        source=source,
        type=str(item.get("type", "scalar")),
        at=_number(item.get("at")) or 0.0,
        attempt=attempt,
    )


def _progress(item: Mapping[str, Json]) -> Progress | None:
    """How far a script says that it is; None where that is no number."""
    done = _number(item.get("done"))
    return None if done is None else Progress(done, _number(item.get("total")), str(item.get("unit") or ""))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _add_model(transaction: Transaction, run_id: str, name: str, item: Any) -> None:
    tags, properties = dict(item.get("tags") or {}), dict(item.get("properties") or {})
    registry.add_model(
        transaction, name, str(item.get("path") or ""), run_id, item.get("description"), tags, properties
    )
