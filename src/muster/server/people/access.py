"""Who may do what: bearer tokens with roles."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, insert, select

from muster import errors
from muster.host.files import PRIVATE, write_file
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction

ROLES = ("admin", "user", "reader", "agent")


@dataclass(frozen=True)
class Caller:
    """The holder of a token."""

    role: str
    subject: str


class Tokens:
    """Tokens are kept as hashes; the cache is whole because one server owns the workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database
        rows = database.read_now(lambda c: c.execute(select(tables.tokens)).all())
        self._callers = {row.hash: (Caller(row.role, row.subject), row.expires_at) for row in rows}

    def create(self, role: str, subject: str, lifetime_s: float | None = None) -> str:
        """A new token; this is the only time that it is seen."""
        token = f"muster_{secrets.token_urlsafe(32)}"
        now = time.time()
        expires_at = now + lifetime_s if lifetime_s else None
        row = {"hash": _hash(token), "role": role, "subject": subject, "created_at": now, "expires_at": expires_at}
        self._database.submit(lambda transaction: transaction.execute(insert(tables.tokens).values(**row))).result()
        self._callers[_hash(token)] = (Caller(role, subject), expires_at)
        return token

    def admin(self, path: Path) -> str:
        """The workspace owner's token, made on first use and kept in a private file."""
        if path.exists():
            token = path.read_text().strip()
            if _hash(token) in self._callers:
                return token
        token = self.create("admin", "owner")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, token, mode=PRIVATE, durable=True)
        return token

    def end_agents(self, transaction: Transaction, nodes: Collection[str]) -> None:
        """The tokens of these nodes' agents open nothing any more, once this is committed."""
        table = tables.tokens
        for node in nodes:
            transaction.execute(delete(table).where(table.c.role == "agent", table.c.subject == node))
        transaction.after_commit.append(lambda: self._forget_agents(frozenset(nodes)))

    def _forget_agents(self, nodes: Collection[str]) -> None:
        ended = [
            key for key, (caller, _) in self._callers.items() if caller.role == "agent" and caller.subject in nodes
        ]
        for key in ended:
            del self._callers[key]

    def caller(self, authorization: str | None) -> Caller:
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise errors.AccessDenied(
                "this server wants a token and none was sent",
                "Set MUSTER_TOKEN (or MUSTER_TOKEN_FILE); `muster up --print-token` shows the owner's.",
            )
        caller, expires_at = self._callers.get(_hash(token.strip()), (None, None))
        if caller is None or (expires_at is not None and expires_at < time.time()):
            raise errors.AccessDenied(
                "the token is not valid here, or has expired",
                "Ask the workspace's owner for a new one.",
            )
        return caller


def allow(caller: Caller, *, method: str, path: str) -> None:
    """Refuse what the caller's role does not cover."""
    area = path.removeprefix("/api/v1/").split("/")[0]
    if caller.role == "admin":
        return
    if caller.role == "agent":
        if area == "agents" or (area == "snapshots" and method == "GET"):
            return
    elif area not in ("agents", "shutdown") and (caller.role == "user" or method in ("GET", "HEAD")):
        return
    raise errors.AccessDenied(
        f"a token with the role {caller.role!r} may not {method} {path}",
        f"Roles are {', '.join(ROLES)}; ask the workspace's owner for a wider one.",
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
