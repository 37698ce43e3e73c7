"""Authentication: bearer tokens of people, agents and runs. What each may do is in `control.access`."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from muster import errors
from muster.control.access import AGENT, Caller, narrower
from muster.defaults import TOKEN_USED_S
from muster.host.files import PRIVATE, write_file
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.people.persons import People
from muster.wire.people import ADMIN, INVITE_PREFIX, Role, TokenView

__all__ = ["FOLDER_LABEL", "INVITE", "Caller", "Kept", "Tokens", "kept_of", "session_label", "token_hash"]

INVITE = "invite"
FOLDER_LABEL = "the workspace's folder"
_TOKEN_PREFIX = "muster_"
_ID_LENGTH = 12


@dataclass(frozen=True)
class Kept:
    """The record of a token: never the token itself."""

    hash: str
    role: str
    subject: str
    label: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    used_at: float | None = None

    @property
    def id(self) -> str:
        """The id that people use; it reveals nothing of the token."""
        return self.hash[:_ID_LENGTH]

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at < now

    def view(self, role: Role) -> TokenView:
        kind = "invite" if self.role == INVITE else "token"
        return TokenView(
            self.id, self.subject, role, self.label, self.created_at, self.expires_at, self.used_at,
            kind,  # type: ignore[arg-type]
        )  # fmt: skip


class Tokens:
    """Tokens, kept as hashes; the cache is complete because one server owns the workspace."""

    def __init__(self, database: Database, people: People | None = None) -> None:
        self._database = database
        self.people = people or People(database)
        self._lock = threading.Lock()
        rows = database.read_now(lambda c: c.execute(select(tables.tokens)).all())
        self._kept = {row.hash: kept_of(row) for row in rows}
        self._hashes = {kept.id: kept.hash for kept in self._kept.values()}
        self.on_change: Callable[[], None] = lambda: None
        """Called when somebody's rights shrink: every open stream is checked again."""

    def create(self, role: str, subject: str, lifetime_s: float | None = None) -> str:
        """A new token; it is shown only now."""
        return self._database.submit(lambda t: self.add(t, role, subject, lifetime_s)[0]).result()

    def add(
        self, transaction: Transaction, role: str, subject: str, lifetime_s: float | None, label: str = ""
    ) -> tuple[str, Kept]:
        """A new token, as part of a write."""
        token = (INVITE_PREFIX if role == INVITE else _TOKEN_PREFIX) + secrets.token_urlsafe(32)
        now = time.time()
        kept = Kept(token_hash(token), role, subject, label, now, now + lifetime_s if lifetime_s else None)
        transaction.execute(insert(tables.tokens).values(**vars(kept)))
        transaction.after_commit.append(lambda: self._remember(kept))
        return token, kept

    def admin(self, path: Path) -> str:
        """The workspace owner's token, made on first use and kept in a private file."""
        owner = self.people.owner
        if path.exists():
            token = path.read_text().strip()
            kept = self._kept.get(token_hash(token))
            if kept is not None and kept.role == ADMIN and kept.subject == owner:
                return token
            if kept is not None and kept.role == ADMIN and kept.subject not in self.people:
                # It was made before people had names.
                self._database.submit(lambda t: self._assign_person(t, kept, owner)).result()
                return token
        token = self._database.submit(lambda t: self.add(t, ADMIN, owner, None, FOLDER_LABEL)[0]).result()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, token, mode=PRIVATE, durable=True)
        return token

    def end(self, transaction: Transaction, hashes: Collection[str]) -> None:
        """Revoke these tokens once this is committed."""
        table = tables.tokens
        for key in hashes:
            transaction.execute(delete(table).where(table.c.hash == key))
        transaction.after_commit.append(lambda: self._forget(frozenset(hashes)))

    def end_token(self, transaction: Transaction, token: str) -> None:
        """Revoke a token, given its text, once this is committed."""
        self.end(transaction, [token_hash(token)])

    def end_agents(self, transaction: Transaction, nodes: Collection[str]) -> None:
        """Revoke the tokens of these nodes' agents once this is committed."""
        table = tables.tokens
        mine = table.c.role == AGENT, table.c.subject.in_(sorted(nodes))
        self.end(transaction, transaction.execute(select(table.c.hash).where(*mine)).scalars().all())

    def end_person(self, transaction: Transaction, person: str) -> None:
        """Revoke all tokens of a person once this is committed."""
        table = tables.tokens
        mine = table.c.role != AGENT, table.c.subject == person
        self.end(transaction, transaction.execute(select(table.c.hash).where(*mine)).scalars().all())

    def caller(self, authorization: str | None) -> Caller:
        """Who presents this token; raises AccessDenied where it is not valid."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise errors.AccessDenied(
                "this server needs a token and none was sent",
                "Set MUSTER_TOKEN (or MUSTER_TOKEN_FILE), or `muster login URL`; "
                "`muster up --print-token` shows the owner's.",
            )
        kept = self._kept.get(token_hash(token.strip()))
        found = self._caller(kept) if kept is not None else None
        if kept is None or found is None:
            raise errors.AccessDenied(
                "the token is not valid here, or has expired",
                "Ask an administrator of the workspace for a new one: `muster user invite NAME`.",
            )
        self._note_use(kept)
        return found

    def expiry(self, token_id: str) -> float | None:
        """When a token expires; None: never."""
        kept = self._kept.get(self._hashes.get(token_id, ""))
        return kept.expires_at if kept is not None else None

    def holds(self, caller: Caller) -> bool:
        """Whether an authenticated caller's token is still valid, with the same rights or more."""
        kept = self._kept.get(self._hashes.get(caller.token, ""))
        return kept is not None and self._caller(kept) == caller

    def _caller(self, kept: Kept) -> Caller | None:
        if kept.role == INVITE or kept.has_expired(time.time()):
            return None
        if kept.role == AGENT:
            return Caller(AGENT, kept.subject, kept.id)
        role = self.people.role(kept.subject)
        return None if role is None else Caller(narrower(role, kept.role), kept.subject, kept.id)  # type: ignore[arg-type]

    def _note_use(self, kept: Kept) -> None:
        now = time.time()
        if kept.role == AGENT or (kept.used_at is not None and now - kept.used_at < TOKEN_USED_S):
            return
        self._remember(replace(kept, used_at=now), known=True)
        table = tables.tokens
        # In the background: nobody waits for it.
        self._database.submit(lambda t: t.execute(update(table).where(table.c.hash == kept.hash).values(used_at=now)))

    def _assign_person(self, transaction: Transaction, kept: Kept, person: str) -> None:
        table = tables.tokens
        transaction.execute(update(table).where(table.c.hash == kept.hash).values(subject=person, label=FOLDER_LABEL))
        transaction.after_commit.append(lambda: self._remember(replace(kept, subject=person, label=FOLDER_LABEL)))

    def _remember(self, kept: Kept, known: bool = False) -> None:
        with self._lock:
            # A token that was revoked meanwhile must not come back.
            if not known or kept.hash in self._kept:
                self._kept[kept.hash] = kept
                self._hashes[kept.id] = kept.hash

    def _forget(self, hashes: Collection[str]) -> None:
        with self._lock:
            for key in hashes:
                self._kept.pop(key, None)
        self.on_change()


def session_label(token_id: str) -> str:
    """The label of sessions that were begun with a token: they end with it."""
    return f"portal, with {token_id}"


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def kept_of(row: Row[Any]) -> Kept:
    """A token's record from its row."""
    return Kept(row.hash, row.role, row.subject, row.label or "", row.created_at, row.expires_at, row.used_at)
