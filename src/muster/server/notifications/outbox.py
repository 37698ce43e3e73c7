"""Events of runs become notifications, each once: they are committed together with the position reached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from muster.control.happenings import happening_of, title
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note, upsert
from muster.server.runs.views import load_progress, moved_at, verdict_of
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.notifications import events
from muster.wire.notifications.events import Happening, Notification, NotifiedRun, wants
from muster.wire.runs import slowest
from muster.wire.stream import Note, StateChanged, decode_event
from muster.wire.text import printable

_AT_ONCE = 1000
_LINES = 5
_KINDS = (StateChanged.kind, Note.kind)


def has_news(connection: Connection) -> bool:
    """Whether there are events that somebody may have subscribed to."""
    position = connection.execute(select(tables.outbox.c.position)).scalar()
    if position is None:
        return False
    newest = connection.execute(select(func.max(tables.events.c.id))).scalar() or 0
    return bool(newest > position)


def gather(context: Context, transaction: Transaction) -> bool:
    """Make notifications of the events that are new; returns whether there are more."""
    position = transaction.execute(select(tables.outbox.c.position)).scalar() or 0
    table = tables.events
    query = select(table).where(table.c.id > position).order_by(table.c.id).limit(_AT_ONCE)
    found = transaction.execute(query).all()
    if not found:
        return False
    _queue_events(context, transaction, [row for row in found if row.kind in _KINDS])
    upsert(transaction, tables.outbox, {"id": 1, "position": found[-1].id})
    return len(found) == _AT_ONCE


def look_for_silence(context: Context, transaction: Transaction) -> None:
    """Notify, once, of runs that have printed and logged nothing for as long as a subscription says."""
    runs = tables.runs
    now = clock.now()
    rows = transaction.execute(select(runs).where(runs.c.status == states.RUNNING)).all()
    subscribed = _subscriptions(context, transaction.connection, [row.id for row in rows])
    for row in rows:
        moved = moved_at(context, row)
        if moved is None:
            continue
        for item in _of_run(subscribed, row):
            silent_s = now - moved
            if silent_s < item.quiet_s or not wants(item.wanted, events.HANGS):
                continue
            silent = f"nothing printed or logged for {silent_s / 60:.1f} min"
            text = f"{silent[0].upper()}{silent[1:]}. `muster stacks {row.id}` shows where it is."
            key = f"{item.id}/hang/{row.id}/{row.attempt}/{moved:.0f}"
            if _queue(context, transaction, item, row, events.HANGS, now, text, key):
                add_note(transaction, row.id, "warning", f"{silent}: {item.shown} is told that it seems to hang")


def _queue_events(context: Context, transaction: Transaction, found: Sequence[Row[Any]]) -> None:
    ids = sorted({row.run_id for row in found})
    runs = tables.runs
    rows = {row.id: row for row in transaction.execute(select(runs).where(runs.c.id.in_(ids)))}
    subscribed = _subscriptions(context, transaction.connection, ids)
    for event in found:
        row = rows.get(event.run_id)
        if row is None:
            continue
        what = decode_event(event.kind, {**event.data, "at": event.at})
        happening = happening_of(what, row.created_at) if isinstance(what, StateChanged | Note) else None
        if happening is None:
            continue
        text = what.text if isinstance(what, Note) else _verdict_text(row, happening)
        for item in _of_run(subscribed, row):
            if wants(item.wanted, happening) and event.at >= min(item.created_at, row.created_at):
                _queue(context, transaction, item, row, happening, event.at, text, f"{item.id}/{event.id}")


def _subscriptions(context: Context, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
    """The subscriptions of the workspace and of these runs, without those of people who are locked out."""
    table = tables.subscriptions
    query = select(table).where(table.c.run_id.is_(None) | table.c.run_id.in_(ids))
    people = context.tokens.people
    return [row for row in connection.execute(query) if row.owner is None or people.role(row.owner) is not None]


def _of_run(subscribed: Iterable[Row[Any]], run: Row[Any]) -> list[Row[Any]]:
    """The subscriptions that cover a run, one per receiver: those for this run take precedence."""
    mine = [item for item in subscribed if item.run_id == run.id]
    covered = {item.receiver for item in mine}
    for item in subscribed:
        if item.run_id is not None or item.id in covered or item.created_at > (run.ended_at or float("inf")):
            continue
        if item.runs == "all" or (item.runs == "mine" and item.owner == run.submitted_by):
            mine.append(item)
    return mine


def _queue(
    context: Context,
    transaction: Transaction,
    item: Row[Any],
    run: Row[Any],
    happening: Happening,
    at: float,
    text: str,
    key: str,
) -> bool:
    """Queue a notification; False: it is queued already."""
    made = hashlib.sha256(key.encode()).hexdigest()[:32]
    progress = slowest(load_progress(transaction.connection, [run.id]).get(run.id, ()))
    notified = NotifiedRun(
        run.id,
        printable(run.display_name or run.name) if run.display_name or run.name else None,
        run.experiment,
        run.status,
        run.compute,
        run.submitted_by,
        run.attempt,
        run.created_at,
        run.started_at,
        run.ended_at,
    )
    verdict = verdict_of(run) if run.status in states.TERMINAL else None
    page = f"{context.notifications.url}/portal/runs/{run.id}" if context.notifications.url else None
    notification = Notification(
        made,
        happening,
        at,
        title(happening, _label(run)),
        text,
        context.workspace_id,
        notified,
        verdict,
        progress,
        page,
    )
    return put(transaction, item.receiver or item.id, run.id, notification)


def _label(run: Row[Any]) -> str:
    """A run by the name that its submitter gave it."""
    return f"{printable(run.name)} ({run.id})" if run.name and run.name != run.id else str(run.id)


def put(transaction: Transaction, target: str, run_id: str | None, notification: Notification) -> bool:
    """Queue a notification until it is delivered; False: it is queued already."""
    dialect = insert_sqlite if transaction.connection.dialect.name == "sqlite" else insert_postgres
    now = clock.now()
    row = {
        "id": notification.id,
        "target": target,
        "run_id": run_id,
        "event": notification.event,
        "body": to_json(notification),
    }
    row |= {"created_at": now, "tries": 0, "due_at": now, "given_up": False, "answer": ""}
    adding = dialect(tables.deliveries).values(row).on_conflict_do_nothing(index_elements=["id"])
    return bool(transaction.execute(adding).rowcount)


def _verdict_text(row: Row[Any], happening: Happening) -> str:
    verdict = verdict_of(row)
    if verdict is None or happening not in (events.FAILS, events.CANCELS):
        return ""
    lines = "\n".join(verdict.lines[-_LINES:])
    return "\n".join(part for part in (verdict.message, lines, verdict.next) if part)
