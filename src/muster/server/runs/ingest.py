"""What scripts log: lines of event streams become metrics, tags, progress and models, each once."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert_postgres
from sqlalchemy.dialects.sqlite import insert as upsert_sqlite
from sqlalchemy.exc import DataError, IntegrityError

from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event
from muster.server.models import registry
from muster.server.runs import datawait

_LIMIT_BYTES = 8 << 20


UNUSABLE = (DataError, IntegrityError, KeyError, TypeError, ValueError, AttributeError)
"""What is raised for something that cannot be recorded, today or tomorrow."""


def parse_events(
    context: Context, transaction: Transaction, run_id: str, attempt: int, stream: str, singly: bool = False
) -> None:
    """Take in the complete lines that are new; the place reached is committed with them.

    With `singly` a line that cannot be recorded is passed over.
    """
    streams = tables.streams
    where = (streams.c.run_id == run_id, streams.c.attempt == attempt, streams.c.stream == stream)
    parsed = transaction.execute(select(streams.c.parsed).where(*where)).scalar() or 0
    while True:
        data = context.streams.read(run_id, attempt, stream, parsed, _LIMIT_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            # A line longer than the limit is passed over; otherwise the rest of it is still to come.
            if len(data) < _LIMIT_BYTES:
                return
            whole = data
        if singly:
            _apply_singly(transaction, run_id, attempt, stream, whole.splitlines())
        else:
            _apply(transaction, run_id, attempt, stream, whole.splitlines())
        parsed += len(whole)
        upsert = upsert_sqlite if transaction.connection.dialect.name == "sqlite" else upsert_postgres
        transaction.execute(
            upsert(streams)
            .values(run_id=run_id, attempt=attempt, stream=stream, parsed=parsed)
            .on_conflict_do_update(index_elements=["run_id", "attempt", "stream"], set_={"parsed": parsed})
        )


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
        add_event(transaction, run_id, "note", {"level": "warning", "text": text})


def _apply(transaction: Transaction, run_id: str, attempt: int, stream: str, lines: list[bytes]) -> None:
    points: list[dict[str, Any]] = []
    tags: dict[str, str] = {}
    progress: dict[str, Any] | None = None
    source = stream.removeprefix("events/").removesuffix(".jsonl")
    for line in lines:
        item = _read(line)
        kind = item.get("kind")
        if kind == "metric" and isinstance(item.get("name"), str):
            points.append(point(run_id, attempt, source, item))
        elif kind == "tag":
            tags[str(item.get("name"))] = str(item.get("value"))
        elif kind == "progress":
            progress = {key: item.get(key) for key in ("done", "total", "unit")}
        elif kind == "model" and item.get("name"):
            registry.add_model(transaction, {**item, "run_id": run_id})
    if points:
        transaction.execute(insert(tables.metrics), points)
        datawait.look(transaction, run_id, attempt, points)
    if tags:
        known = transaction.execute(select(tables.runs.c.tags).where(tables.runs.c.id == run_id)).scalar() or {}
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(tags={**known, **tags}))
    if progress:
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(progress=progress))


def point(run_id: str, attempt: int, source: str, item: dict[str, Any]) -> dict[str, Any]:
    """A row of the metrics table."""
    step = item.get("step")
    at = item.get("at")
    return {
        "run_id": run_id,
        "attempt": attempt,
        "source": source[:255],
        "name": str(item["name"])[:255],
        "type": str(item.get("type", "scalar"))[:16],
        "value": item.get("value"),
        "step": float(step) if isinstance(step, int | float) else None,
        "at": float(at) if isinstance(at, int | float) else 0.0,
    }


def _read(line: bytes) -> dict[str, Any]:
    """A line as a mapping; what is not one is passed over, since scripts may write there too."""
    try:
        item = json.loads(line)
    except ValueError:
        return {}
    return item if isinstance(item, dict) else {}
