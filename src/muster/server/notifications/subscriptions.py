"""Subscriptions: receivers by name, and those of one run."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select

from muster import errors
from muster.control.access import Action, Caller, require
from muster.host import clock
from muster.job.parts import Notify
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of, upsert
from muster.server.notifications.addresses import Target, looks_like_address, read_address
from muster.server.notifications.forms import SECRET_PREFIX
from muster.server.notifications.state import NO_SMTP
from muster.wire.notifications.events import QUIET_S
from muster.wire.notifications.receivers import (
    AddedReceiver,
    DeliveryView,
    Kind,
    NewReceiver,
    NewWatch,
    ReceiverView,
    Runs,
)
from muster.wire.people import ADMIN

MOST_OF_PERSON = 100
MOST_OF_RUN = 20
_SECRET_BYTES = 24
_LISTED = 1000


@dataclass(frozen=True)
class Subscription:
    """One row of the table."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    created_at: float = field(default_factory=clock.now)
    name: str | None = None
    run_id: str | None = None
    receiver: str | None = None
    owner: str | None = None
    kind: Kind = "webhook"
    shown: str = ""
    sealed: str | None = None
    wanted: tuple[str, ...] = ()
    runs: Runs = "named"
    quiet_s: float = QUIET_S


def about(subscription: str) -> str:
    """The name that a sealed address is bound to."""
    return f"notifications/{subscription}"


def add(context: Context, transaction: Transaction, given: NewReceiver, caller: Caller) -> AddedReceiver:
    """Create a receiver that belongs to the caller; its messages are signed with a secret that is shown only now."""
    target = _target(context, given.address)
    table = tables.subscriptions
    if transaction.execute(select(table.c.id).where(table.c.name == given.name)).first():
        raise errors.Conflict(
            f"there is a receiver {given.name!r} already", f"`muster notify remove {given.name}` first."
        )
    count = select(func.count()).select_from(table).where(table.c.owner == caller.subject, table.c.run_id.is_(None))
    if transaction.execute(count).scalar_one() >= MOST_OF_PERSON:
        raise errors.Conflict(f"{caller.subject} has {MOST_OF_PERSON} receivers already", "Remove some first.")
    secret = None
    if target.kind == "webhook":
        secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    asked = Subscription(
        name=given.name, owner=caller.subject, wanted=given.when, runs=given.runs, quiet_s=given.quiet_s
    )
    made = _addressed(context, asked, target, secret)
    _insert(transaction, made)
    return AddedReceiver(**vars(_view(transaction.connection, made)), secret=secret)


def remove(transaction: Transaction, name: str, caller: Caller) -> None:
    """Remove a receiver, and what is queued for it."""
    row = find(transaction.connection, name)
    require(caller, Action.NOTIFY, row.owner, f"the receiver {name}")
    table = tables.subscriptions
    transaction.execute(delete(table).where(or_(table.c.id == row.id, table.c.receiver == row.id)))
    transaction.execute(delete(tables.deliveries).where(tables.deliveries.c.target == row.id))


def find(connection: Connection, name: str) -> Row[Any]:
    """A receiver by name, or a refusal that names the known ones."""
    table = tables.subscriptions
    row = connection.execute(select(table).where(table.c.name == name)).first()
    if row is None:
        names = connection.execute(select(table.c.name).where(table.c.name.is_not(None)).limit(20)).scalars()
        known = ", ".join(sorted(names))
        raise errors.NotFound(
            f"there is no receiver {name!r}",
            (f"Known here: {known}. " if known else "") + f"`muster notify add {name} ADDRESS` makes it.",
        )
    return row


def watch(context: Context, transaction: Transaction, run_id: str, given: NewWatch, caller: Caller) -> ReceiverView:
    """Subscribe a receiver to one run."""
    return _view(transaction.connection, _watching(context, transaction, run_id, given, caller))


def watch_job(
    context: Context, transaction: Transaction, run_id: str, notify: Iterable[Notify], person: str | None
) -> None:
    """Subscribe the receivers that a job names; raises for one that cannot be notified."""
    role = context.tokens.people.role(person) if person else ADMIN
    for item in notify:
        given = NewWatch(item.to, item.when, item.quiet_s)
        _watching(context, transaction, run_id, given, Caller(role or "member", person or ""))


def listing(connection: Connection, caller: Caller, run_id: str | None) -> list[ReceiverView]:
    """Receivers of the workspace, or those of a run; non-administrators see their own and shared ones."""
    table = tables.subscriptions
    query = select(table).order_by(table.c.created_at.desc(), table.c.id).limit(_LISTED)
    query = query.where(table.c.run_id == run_id) if run_id else query.where(table.c.run_id.is_(None))
    if caller.role != ADMIN:
        query = query.where(or_(table.c.owner == caller.subject, table.c.runs == "all"))
    return [_view(connection, message_of(Subscription, row)) for row in connection.execute(query).all()]


def target_of(context: Context, row: Row[Any]) -> tuple[Target, str | None]:
    """The address of a subscription's messages, and the secret that signs them."""
    opened = context.vault.open(row.sealed, about(row.id))
    secret = opened.get("secret")
    return Target(row.kind, str(opened["address"])), None if secret is None else str(secret)


def _watching(context: Context, transaction: Transaction, run_id: str, given: NewWatch, caller: Caller) -> Subscription:
    table = tables.subscriptions
    count = select(func.count()).select_from(table).where(table.c.run_id == run_id)
    if transaction.execute(count).scalar_one() >= MOST_OF_RUN:
        raise errors.Conflict(f"{MOST_OF_RUN} receivers are notified about {run_id} already", "Name fewer.")
    made = Subscription(run_id=run_id, owner=caller.subject or None, wanted=given.when, quiet_s=given.quiet_s)
    if looks_like_address(given.to):
        made = _addressed(context, made, _target(context, given.to), None)
    else:
        named = find(transaction.connection, given.to)
        if named.runs != "all":
            require(caller, Action.NOTIFY, named.owner, f"the receiver {given.to}")
        made = replace(made, receiver=named.id, kind=named.kind, shown=named.name)
    _insert(transaction, made)
    return made


def _addressed(context: Context, made: Subscription, target: Target, secret: str | None) -> Subscription:
    sealed = context.vault.seal({"address": target.address, "secret": secret}, about(made.id))
    return replace(made, kind=target.kind, shown=target.shown, sealed=sealed)


def _insert(transaction: Transaction, made: Subscription) -> None:
    if transaction.execute(select(tables.subscriptions.c.id).limit(1)).first() is None:
        # Nobody subscribed to earlier events: start after the newest one.
        newest = transaction.execute(select(func.max(tables.events.c.id))).scalar() or 0
        upsert(transaction, tables.outbox, {"id": 1, "position": newest})
    transaction.execute(insert(tables.subscriptions).values(**{**vars(made), "wanted": list(made.wanted)}))


def _target(context: Context, address: str) -> Target:
    target = read_address(address)
    if target.kind == "mail" and context.notifications.smtp is None:
        raise errors.Conflict("this workspace sends no mail yet", NO_SMTP)
    return target


def _view(connection: Connection, row: Subscription) -> ReceiverView:
    table = tables.deliveries
    mine = table.c.target == (row.receiver or row.id)
    if row.run_id:
        mine = mine & (table.c.run_id == row.run_id)
    newest = connection.execute(select(table).where(mine).order_by(table.c.created_at.desc()).limit(1)).first()
    waiting = select(func.count()).select_from(table).where(mine, table.c.due_at.is_not(None))
    return ReceiverView(
        name=row.name or (row.shown if row.receiver else None),
        run=row.run_id,
        kind=row.kind,
        address=row.shown,
        when=tuple(row.wanted),
        runs=row.runs,
        quiet_s=row.quiet_s,
        owner=row.owner,
        created_at=row.created_at,
        waiting=connection.execute(waiting).scalar_one(),
        last=None if newest is None else message_of(DeliveryView, newest, run=newest.run_id, at=newest.created_at),
    )
