"""Says, once in each attempt, that a run waits for data more than it computes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import select

from muster.control.datawait import COMPUTE_METRIC, DATA_METRIC, advice
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event
from muster.wire.runs import MetricPoint
from muster.wire.stream import Note


def look(transaction: Transaction, run_id: str, attempt: int, points: Sequence[MetricPoint]) -> None:
    """After metrics were recorded: compare what a rank says of its waiting and computing."""
    if not any(point.name == DATA_METRIC for point in points):
        return
    source = points[-1].source
    data_s, compute_s = (_last(transaction, run_id, attempt, source, name) for name in (DATA_METRIC, COMPUTE_METRIC))
    if data_s is None or compute_s is None:
        return
    text = advice(data_s, compute_s)
    if text is not None and not _is_said(transaction, run_id, attempt):
        who = source.replace("_", " ")
        add_event(transaction, run_id, Note("warning", f"{who} {text}", time.time(), attempt))


def _last(transaction: Transaction, run_id: str, attempt: int, source: str, name: str) -> float | None:
    metrics = tables.metrics
    mine = (metrics.c.run_id == run_id, metrics.c.attempt == attempt, metrics.c.source == source)
    newest = select(metrics.c.value).where(*mine, metrics.c.name == name).order_by(metrics.c.id.desc()).limit(1)
    value = transaction.execute(newest).scalar()
    return float(value) if isinstance(value, int | float) else None


def _is_said(transaction: Transaction, run_id: str, attempt: int) -> bool:
    events = tables.events
    rows = transaction.execute(select(events.c.data).where(events.c.run_id == run_id, events.c.kind == "note"))
    return any(row.data.get("data_wait") == attempt for row in rows)
