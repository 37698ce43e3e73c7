"""What scripts log: lines of event streams become metrics, tags, progress and models, each once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError

from muster.control.datawait import MEASURES, WAITS, advice
from muster.control.divergence import diverged, is_noted
from muster.errors import UserError
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event, add_note, add_note_once, upsert
from muster.server.logs import steps
from muster.server.models import registry
from muster.server.runs import logged
from muster.server.tracking.labels import set_params, set_tags
from muster.server.tracking.recording import add_points
from muster.store.streams import Streams
from muster.wire.codec import to_json
from muster.wire.runs import MetricPoint, Progress
from muster.wire.stream import Note
from muster.wire.text import storable

_LIMIT_BYTES = 8 << 20

UNUSABLE = (
    DataError, IntegrityError, InterfaceError, ProgrammingError, UserError,
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
"""Errors of data that can never be recorded, however often it is tried."""


def parse_events(context: Context, transaction: Transaction, run_id: str, attempt: int, stream: str) -> None:
    """Record the new events of an attempt's stream."""
    parse_stream(context.files.streams, transaction, run_id, attempt, stream)


def parse_stream(stored: Streams, transaction: Transaction, run_id: str, attempt: int, stream: str) -> None:
    """Record the complete lines that are new, without those that cannot be recorded.

    The offset reached is committed with them.
    """
    streams = tables.streams
    where = (streams.c.run_id == run_id, streams.c.attempt == attempt, streams.c.stream == stream)
    parsed = transaction.execute(select(streams.c.parsed).where(*where)).scalar() or 0
    while True:
        data = stored.read(run_id, attempt, stream, parsed, _LIMIT_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            # A line longer than the limit is skipped; otherwise the rest of it is still to come.
            if len(data) < _LIMIT_BYTES:
                return
            whole = data
        _record_lines(transaction, run_id, attempt, stream, whole.splitlines())
        parsed += len(whole)
        upsert(transaction, streams, {"run_id": run_id, "attempt": attempt, "stream": stream, "parsed": parsed})


def _record_lines(transaction: Transaction, run_id: str, attempt: int, stream: str, lines: Sequence[bytes]) -> None:
    source = stream.removeprefix("events/").removesuffix(".jsonl")
    found: list[logged.Logged] = []
    left_out: list[str] = []
    for line in lines:
        try:
            item = logged.read_line(line, attempt, source)
        except logged.Unusable as error:
            left_out.append(str(error))
        else:
            found += [] if item is None else [item]
    try:
        with transaction.connection.begin_nested():
            _apply(transaction, run_id, attempt, found)
    except UNUSABLE:
        left_out += _apply_singly(transaction, run_id, attempt, found)
    if left_out:
        _note_left_out(transaction, run_id, stream, left_out)


def _apply_singly(transaction: Transaction, run_id: str, attempt: int, items: Sequence[logged.Logged]) -> list[str]:
    """Record what can be recorded; returns why the rest cannot."""
    left_out = []
    for item in items:
        try:
            with transaction.connection.begin_nested():
                _apply(transaction, run_id, attempt, [item])
        except UNUSABLE as error:
            left_out.append(type(error).__name__)
    return left_out


def _note_left_out(transaction: Transaction, run_id: str, stream: str, why: Sequence[str]) -> None:
    """Note each reason once per stream: a script that keeps doing it must not fill the run with notes."""
    for reason in dict.fromkeys(why):
        text = f"{storable(stream)} holds lines that cannot be recorded, and they are left out: {reason}"
        add_note_once(transaction, run_id, "warning", text)


def _apply(transaction: Transaction, run_id: str, attempt: int, items: Sequence[logged.Logged]) -> None:
    points = [item for item in items if isinstance(item, MetricPoint)]
    add_points(transaction, run_id, points)
    _advise_on_data_wait(transaction, run_id, attempt, points)
    if text := diverged(points):
        _add_notice_of_divergence(transaction, run_id, text)
    if tags := {item.name: item.value for item in items if isinstance(item, logged.Tag)}:
        set_tags(transaction, run_id, tags)
    if params := {item.name: item.value for item in items if isinstance(item, logged.Param)}:
        set_params(transaction, run_id, attempt, params)
    progress = [item for item in items if isinstance(item, Progress)]
    if progress:
        steps.drop(transaction, run_id)
        row = {"run_id": run_id, "attempt": attempt, "printed": False, **to_json(progress[-1])}
        upsert(transaction, tables.progress, row, newer="attempt")
    for item in items:
        if isinstance(item, logged.LoggedModel):
            _add_model(transaction, run_id, item)
        elif isinstance(item, logged.Lost) and item.count > 0:
            _note_lost(transaction, run_id, item)


def _note_lost(transaction: Transaction, run_id: str, lost: logged.Lost) -> None:
    """Note on the run that its node's disk had no room for what a script logged."""
    who, what = lost.source.replace("_", " "), "event" if lost.count == 1 else "events"
    text = f"{who} logged {lost.count:,} {what} that could not be written and are missing (disk full?)"
    _add_notice(transaction, run_id, text, _notices(transaction, run_id))
    add_note(transaction, run_id, "error", text)


def _add_notice_of_divergence(transaction: Transaction, run_id: str, text: str) -> None:
    """Note on the run, once, that its loss is no longer a number."""
    known = _notices(transaction, run_id)
    if not is_noted(known):
        _add_notice(transaction, run_id, text, known)
        add_note(transaction, run_id, "warning", text)


def _notices(transaction: Transaction, run_id: str) -> list[str]:
    return transaction.execute(select(tables.runs.c.notices).where(tables.runs.c.id == run_id)).scalar() or []


def _add_notice(transaction: Transaction, run_id: str, text: str, known: list[str]) -> None:
    transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(notices=[*known, text]))


def _advise_on_data_wait(transaction: Transaction, run_id: str, attempt: int, points: Sequence[MetricPoint]) -> None:
    """Note, once per attempt, that a run waits for data more than it computes."""
    logged_here = {point.name for point in points}
    measure = next((pair for pair in MEASURES if pair[0] in logged_here), None)
    if measure is None:
        return
    source = points[-1].source
    data_s, compute_s = (_last(transaction, run_id, attempt, source, name) for name in measure)
    if data_s is None or compute_s is None:
        return
    text = advice(data_s, compute_s)
    events = tables.events
    notes = select(events.c.data).where(events.c.run_id == run_id, events.c.kind == Note.kind)
    if text and all(data.get("data_wait") != attempt for data in transaction.execute(notes).scalars()):
        note = Note("warning", f"{source.replace('_', ' ')} {text}", time.time(), attempt)
        add_event(transaction, run_id, note)
        known = _notices(transaction, run_id)
        if not any(WAITS in note for note in known):
            _add_notice(transaction, run_id, note.text, known)


def _last(transaction: Transaction, run_id: str, attempt: int, source: str, name: str) -> float | None:
    series = tables.metric_series
    mine = (series.c.run_id == run_id, series.c.attempt == attempt, series.c.source == source, series.c.name == name)
    newest = select(series.c.last).where(*mine).order_by(series.c.last_order.desc()).limit(1)
    return logged.number(transaction.execute(newest).scalar())


def _add_model(transaction: Transaction, run_id: str, model: logged.LoggedModel) -> None:
    registry.add_model(transaction, model.name, model.path, run_id, model.description, model.tags, model.properties)
