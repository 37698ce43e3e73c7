"""The audit log: who did what to what, when, from where. Append-only, in the same write as the action."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection, insert, select

from muster.control.access import UNRECORDED, Action, Caller
from muster.defaults import AUDIT_AGAIN_S
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of
from muster.wire.people import AuditEntry
from muster.wire.text import printable

T = TypeVar("T")

_MANY = frozenset({Action.WRITE_DATA, Action.LOG_TO_RUN})
"""Actions that come by the thousand: one a minute is recorded per person and datastore or run."""
_TEXT_LENGTH = 500
_ADD = insert(tables.audit)
_REMEMBERED = 10_000


@dataclass
class Deed:
    """One call while it is answered: who makes it, and what it is about."""

    caller: Caller | None
    source: str
    action: Action | None = None
    target: str = ""
    detail: str = ""
    is_recorded: bool = field(default=False)

    @property
    def is_kept(self) -> bool:
        """Whether it is recorded once done: what people do, not what they read."""
        return self.caller is not None and self.caller.is_person and self.action not in (None, *UNRECORDED)


CURRENT: ContextVar[Deed | None] = ContextVar("deed", default=None)
_recent: dict[tuple[str, Action | None, str, str], float] = {}


def about(target: str | None = None, detail: str | None = None) -> None:
    """Set what the current call is about; never a secret."""
    if (deed := CURRENT.get()) is not None:
        deed.target = deed.target if target is None else target
        deed.detail = deed.detail if detail is None else detail


def witness(work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """The same write, which also records its call in the audit log."""
    deed = CURRENT.get()
    if deed is None or deed.is_recorded or not deed.is_kept:
        return work
    witnessed = deed

    def both(transaction: Transaction) -> T:
        result = work(transaction)
        # What the write creates has its id only now.
        witnessed.target = witnessed.target or str(getattr(result, "id", ""))
        record(transaction, witnessed, "done")
        return result

    return both


def record(transaction: Transaction, deed: Deed, outcome: str) -> None:
    """Add an entry, unless the same one was just written for the same person."""
    caller, action = deed.caller, deed.action
    if caller is None or action is None or not _is_due(deed, outcome):
        return
    row = {
        "at": time.time(),
        "who": caller.subject if caller.is_person else f"{caller.role}/{caller.subject}",
        "role": caller.role,
        "token": caller.token,
        "source": deed.source[:255],
        "action": action.value,
        "target": _plain(deed.target),
        "outcome": outcome,
        "detail": _plain(deed.detail),
    }
    transaction.execute(_ADD, row)
    transaction.after_commit.append(lambda: _settle(deed, outcome))


def listing(
    connection: Connection, before: int | None, limit: int | None, who: str | None, action: str | None
) -> list[AuditEntry]:
    """The newest first."""
    table = tables.audit
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.id < before)
    if who:
        query = query.where(table.c.who == who)
    if action:
        query = query.where(table.c.action == action)
    return [message_of(AuditEntry, row) for row in connection.execute(query)]


def _is_due(deed: Deed, outcome: str) -> bool:
    if outcome == "done" and deed.action not in _MANY:
        return True
    return time.monotonic() - _recent.get(_key(deed, outcome), float("-inf")) > AUDIT_AGAIN_S


def _settle(deed: Deed, outcome: str) -> None:
    deed.is_recorded = True
    if outcome != "done" or deed.action in _MANY:
        if len(_recent) > _REMEMBERED:
            _recent.clear()
        _recent[_key(deed, outcome)] = time.monotonic()


def _key(deed: Deed, outcome: str) -> tuple[str, Action | None, str, str]:
    # For files only the datastore or run counts.
    thing = deed.target.split("/")[0] if deed.action in _MANY else deed.target
    return deed.caller.subject if deed.caller else "", deed.action, thing, outcome


def _plain(text: str) -> str:
    return printable(text)[:_TEXT_LENGTH]
