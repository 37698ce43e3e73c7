"""Secrets: written once, sealed, given to ranks by name, never shown."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable

from sqlalchemy import Connection, delete, select

from muster import errors
from muster.control.access import Action, Caller, may
from muster.control.access import require as require_access
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of, upsert
from muster.wire.codec import to_json
from muster.wire.people import ADMIN, MEMBER
from muster.wire.secrets import NewSecret, SecretView

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
LEAST = 4
MOST_BYTES = 64 << 10


def put(context: Context, transaction: Transaction, name: str, given: NewSecret, caller: Caller) -> SecretView:
    """Set or replace a secret; a new one belongs to whoever sets it."""
    value = given.value
    if not NAME.fullmatch(name):
        raise errors.JobError(f"{name!r} cannot be the name of a secret", "Use letters, digits and '_'.")
    if len(value) < LEAST or len(value.encode()) > MOST_BYTES or "\0" in value:
        raise errors.JobError(
            f"the value of {name} has {len(value)} characters; {LEAST} to {MOST_BYTES:,} bytes are taken",
            "A shorter one could not be masked in logs without masking everything else.",
        )
    table = tables.secrets
    now = time.time()
    known = transaction.execute(select(*table.c["created_at", "owner", "shared"]).where(table.c.name == name)).first()
    if known is not None:
        require_access(caller, Action.SET_SECRET, known.owner, f"the secret {name}")
    owner, shared = (known.owner, bool(known.shared)) if known is not None else (caller.subject, False)
    if given.shared is not None:
        shared = given.shared
    made = SecretView(name, known.created_at if known is not None else now, now, caller.subject, owner, shared)
    sealed = context.vault.seal({"value": value}, about(name))
    upsert(transaction, table, {**to_json(made), "sealed": sealed})
    return made


def listing(connection: Connection) -> list[SecretView]:
    """Names and dates, never values."""
    table = tables.secrets
    columns = table.c["name", "created_at", "updated_at", "updated_by", "owner", "shared"]
    rows = connection.execute(select(*columns).order_by("name"))
    return [message_of(SecretView, row, shared=bool(row.shared)) for row in rows]


def remove(transaction: Transaction, name: str, caller: Caller) -> None:
    require(transaction.connection, [name])
    owner = transaction.execute(select(tables.secrets.c.owner).where(tables.secrets.c.name == name)).scalar()
    require_access(caller, Action.DELETE_SECRET, owner, f"the secret {name}")
    transaction.execute(delete(tables.secrets).where(tables.secrets.c.name == name))


def require(connection: Connection, names: Iterable[str]) -> None:
    """Raise for a name that no secret has."""
    known = set(connection.execute(select(tables.secrets.c.name)).scalars())
    for name in names:
        if name not in known:
            listed = f"Known here: {', '.join(sorted(known))}. " if known else ""
            raise errors.NotFound(f"there is no secret {name!r}", f"{listed}`muster secret set {name}` makes it.")


def require_use(context: Context, connection: Connection, names: Collection[str], person: str | None) -> None:
    """Raise for a name that no secret has, or whose owner has not shared it."""
    require(connection, names)
    people, table = context.tokens.people, tables.secrets
    # Runs submitted before people had names belong to the workspace. A person locked out since keeps their secrets.
    caller = Caller(people.role(person) or MEMBER, person) if person else Caller(ADMIN, "")
    columns = table.c["name", "owner", "shared"]
    for row in connection.execute(select(*columns).where(table.c.name.in_(sorted(set(names))))):
        if not row.shared and not may(caller, Action.USE_SECRET, row.owner):
            raise errors.AccessDenied(
                f"the secret {row.name} belongs to {row.owner or 'the administrators'}, and is not shared",
                f"They share it with `muster secret set {row.name} --shared`; or set one of your own.",
            )


def values(context: Context, connection: Connection, names: Collection[str], person: str | None) -> dict[str, str]:
    """The values of secrets, for a rank's environment; raises as `require_use` does, in case something changed."""
    require_use(context, connection, names, person)
    table = tables.secrets
    rows = connection.execute(select(table.c.name, table.c.sealed).where(table.c.name.in_(sorted(set(names)))))
    return {row.name: str(context.vault.open(row.sealed, about(row.name))["value"]) for row in rows}


def about(name: str) -> str:
    return f"the secret {name}"
