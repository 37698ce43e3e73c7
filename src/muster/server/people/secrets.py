"""Secrets: written once, sealed, handed to ranks by name, never shown."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable

from sqlalchemy import Connection, delete, select

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.wire.codec import to_json
from muster.wire.secrets import SecretView

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
LEAST = 4
MOST_BYTES = 64 << 10


def put(context: Context, transaction: Transaction, name: str, value: str, user: str) -> SecretView:
    """Set a secret, or set it anew."""
    if not NAME.fullmatch(name):
        raise errors.JobError(f"{name!r} cannot be the name of a secret", "Use letters, digits and '_'.")
    if len(value) < LEAST or len(value.encode()) > MOST_BYTES or "\0" in value:
        raise errors.JobError(
            f"the value of {name} has {len(value)} characters; {LEAST} to {MOST_BYTES:,} bytes are taken",
            "A shorter one could not be masked in logs without masking everything else.",
        )
    table = tables.secrets
    now = time.time()
    first = transaction.execute(select(table.c.created_at).where(table.c.name == name)).scalar()
    made = SecretView(name, first or now, now, user)
    sealed = context.vault.seal({"value": value}, about(name))
    upsert(transaction, table, {**to_json(made), "sealed": sealed})
    return made


def listing(connection: Connection) -> list[SecretView]:
    """Names and dates, never values."""
    table = tables.secrets
    rows = connection.execute(
        select(table.c.name, table.c.created_at, table.c.updated_at, table.c.updated_by).order_by(table.c.name)
    )
    return [SecretView(*row) for row in rows]


def remove(transaction: Transaction, name: str) -> None:
    require(transaction.connection, [name])
    transaction.execute(delete(tables.secrets).where(tables.secrets.c.name == name))


def require(connection: Connection, names: Iterable[str]) -> None:
    """Refuse a name that no secret has."""
    known = set(connection.execute(select(tables.secrets.c.name)).scalars())
    for name in names:
        if name not in known:
            listed = f"Known here: {', '.join(sorted(known))}. " if known else ""
            raise errors.NotFound(f"there is no secret {name!r}", f"{listed}`muster secret set {name}` makes it.")


def values(context: Context, connection: Connection, names: Collection[str]) -> dict[str, str]:
    """The values of secrets, for a rank's environment; raises NotFound for one that was removed since."""
    require(connection, names)
    table = tables.secrets
    rows = connection.execute(select(table.c.name, table.c.sealed).where(table.c.name.in_(sorted(set(names)))))
    return {row.name: str(context.vault.open(row.sealed, about(row.name))["value"]) for row in rows}


def about(name: str) -> str:
    return f"the secret {name}"
