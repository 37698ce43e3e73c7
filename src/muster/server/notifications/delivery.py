"""Delivers notifications, with retries until they are accepted. Nothing else waits for it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from muster.control.happenings import title, wait_s
from muster.defaults import WATCH_S
from muster.host import clock
from muster.host.children import Abandoned, Child, ChildEnded
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.notifications import outbox, subscriptions
from muster.server.notifications.errands import Errand, Outcome
from muster.server.notifications.forms import errand
from muster.server.notifications.sender import ERRAND_S
from muster.wire.codec import from_json, to_json
from muster.wire.notifications.events import TEST, Notification
from muster.wire.notifications.receivers import TestedReceiver
from muster.wire.people import ADMIN

log = logging.getLogger("muster.server")

KEPT_S = 3 * 86_400.0
"""How long delivery of a notification is retried."""
_REMEMBERED_S = 7 * 86_400.0
_BATCH = 20
_SILENCE_LOOK_S = 5.0
_PRUNE_S = 3600.0
_SOON_S = 600.0
_COMMAND = (sys.executable, "-P", "-m", "muster.server.notifications.sender")


async def notify(context: Context) -> None:
    """The loop: turn events into notifications, and send those that are due."""
    seen, looked, pruned = -1, 0.0, 0.0
    loop = asyncio.get_running_loop()
    while True:
        try:
            await asyncio.sleep(WATCH_S)
            has_readers = await context.database.read(_has_subscriptions)
            if not has_readers:
                continue
            commits = context.database.writer.commits
            if commits != seen and await context.database.read(outbox.has_news):
                while await context.database.write(partial(outbox.gather, context)):
                    pass
            seen = commits
            if loop.time() - looked > _SILENCE_LOOK_S:
                looked = loop.time()
                await context.database.write(partial(outbox.look_for_silence, context))
            if loop.time() - pruned > _PRUNE_S:
                pruned = loop.time()
                await context.database.write(_prune)
            for target in await context.database.read(partial(_due, busy=frozenset(context.notifications.sending))):
                context.notifications.sending.add(target)
                asyncio.create_task(_serve(context, target))  # noqa: RUF006
        except asyncio.CancelledError:
            context.notifications.stopping.set()
            raise
        except Exception:
            log.exception("notifications could not be created; it is tried again")


def is_busy(connection: Connection) -> bool:
    """Whether a notification is due soon."""
    table = tables.deliveries
    return (
        connection.execute(select(table.c.id).where(table.c.due_at < clock.now() + _SOON_S).limit(1)).first()
        is not None
    )


async def test(context: Context, name: str) -> TestedReceiver:
    """Send a receiver a test at once; returns the outcome."""
    row = await context.database.read(partial(subscriptions.find, name=name))
    now = clock.now()
    made = f"test-{time.time_ns():x}"
    notification = Notification(
        made, TEST, now, title(TEST, ""), f"For the receiver {name}.", context.workspace_id, None
    )
    started = time.monotonic()
    async with context.notifications.turns:
        outcomes = await asyncio.to_thread(
            _send_all, [_prepare(context, row, notification)], context.notifications.stopping
        )
    outcome = outcomes[0] if outcomes else Outcome(made, False, "the process that sends has ended")
    return TestedReceiver(outcome.taken, outcome.answer, time.monotonic() - started)


async def _serve(context: Context, target: str) -> None:
    """Send what is due to one receiver, in order."""
    try:
        async with context.notifications.turns:
            row, waiting = await context.database.read(partial(_load, target=target))
            outcomes = []
            if row is not None:
                errands = [_prepare(context, row, from_json(Notification, item.body)) for item in waiting]
                outcomes = await asyncio.to_thread(_send_all, errands, context.notifications.stopping)
        await context.database.write(partial(_record, waiting=waiting, outcomes=outcomes))
    except Exception:
        log.exception("notifications could not be sent; it is tried again")
        await asyncio.sleep(WATCH_S)
    finally:
        context.notifications.sending.discard(target)


def _has_subscriptions(connection: Connection) -> bool:
    return connection.execute(select(tables.subscriptions.c.id).limit(1)).first() is not None


def _due(connection: Connection, busy: frozenset[str]) -> list[str]:
    table = tables.deliveries
    query = select(table.c.target).where(table.c.due_at <= clock.now()).group_by(table.c.target)
    found = connection.execute(query.order_by(func.min(table.c.due_at)))
    return [row.target for row in found if row.target not in busy]


def _load(connection: Connection, target: str) -> tuple[Row[Any] | None, Sequence[Row[Any]]]:
    table = tables.deliveries
    mine = (table.c.target == target, table.c.due_at <= clock.now())
    waiting = connection.execute(
        select(table).where(*mine).order_by(table.c.created_at, table.c.id).limit(_BATCH)
    ).all()
    row = connection.execute(select(tables.subscriptions).where(tables.subscriptions.c.id == target)).first()
    return row, waiting


def _prepare(context: Context, row: Row[Any], notification: Notification) -> Errand:
    target, secret = subscriptions.target_of(context, row)
    is_trusted = row.owner is None or context.tokens.people.role(row.owner) == ADMIN
    # A person who is not an administrator must not reach the server's own machine through it.
    allowed = None if is_trusted else context.reach.hosts
    return errand(target, notification, secret, time.time(), context.notifications.smtp, allowed)


def _send_all(errands: Sequence[Errand], stopping: threading.Event) -> list[Outcome]:
    """Have a child process send them one after the other; it is ended when all of them together take too long."""
    if not errands:
        return []
    child = Child(_COMMAND, keep_lines=3)
    found: list[Outcome] = []
    # The child has time limits of its own; this one is for name resolution that hangs.
    limit = threading.Timer(2 * ERRAND_S * len(errands), child.end)
    limit.start()
    try:
        for item in errands:
            child.send(to_json(item))
            found.append(from_json(Outcome, child.receive(stopping)))
            if not found[-1].taken:
                # A receiver that rejects this one would reject the next.
                break
    except Abandoned:
        log.info("the server ends: what a receiver has not accepted is sent again by the next one")
    except ChildEnded:
        log.warning("the process that sends notifications has ended: %s", " ".join(child.last_words()))
    finally:
        limit.cancel()
        child.end()
    return found


def _record(transaction: Transaction, waiting: Sequence[Row[Any]], outcomes: Sequence[Outcome]) -> None:
    """Record the outcomes."""
    table, now = tables.deliveries, clock.now()
    known = {item.id: item for item in outcomes}
    refused = next((item for item in outcomes if not item.taken), None)
    for row in waiting:
        outcome = known.get(row.id) or refused
        if outcome is not None and outcome.taken:
            values = {"taken_at": now, "due_at": None, "tries": row.tries + 1, "answer": outcome.answer}
        else:
            answer = outcome.answer if outcome is not None else "the process that sends has ended"
            tries = row.tries + 1
            pause_s = max(wait_s(tries), (outcome.after_s if outcome is not None else None) or 0.0)
            given_up = now - row.created_at > KEPT_S
            values = {"tries": tries, "answer": answer, "given_up": given_up}
            values["due_at"] = None if given_up else now + pause_s
            log.warning("notification %s was not accepted (try %d): %s", row.id, tries, answer)
        transaction.execute(update(table).where(table.c.id == row.id).values(values))


def _prune(transaction: Transaction) -> None:
    """Remove what was delivered or given up long ago, and what has no receiver any more."""
    table = tables.deliveries
    old = (table.c.due_at.is_(None), table.c.created_at < clock.now() - _REMEMBERED_S)
    transaction.execute(delete(table).where(*old))
    transaction.execute(delete(table).where(table.c.target.not_in(select(tables.subscriptions.c.id))))
