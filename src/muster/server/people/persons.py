"""People who may use the workspace, each with a role. The owner of its folder is one of them from the start."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, insert, select, update

from muster import errors
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.wire.people import ADMIN, PERSON, PersonView, Role


@dataclass(frozen=True)
class Person:
    """Somebody with a role."""

    name: str
    role: Role
    created_at: float
    created_by: str | None = None
    disabled_at: float | None = None
    removed_at: float | None = None
    """The name stays taken, since what they made refers to it."""
    sso: str | None = None
    """Their identity at the sign-on service: the issuer and its id for them."""
    unix_user: str | None = None
    """Their account on the server's machine: their ranks run as it where the server is root."""

    @property
    def is_active(self) -> bool:
        return self.disabled_at is None and self.removed_at is None


class People:
    """The people of a workspace; the cache is complete because one server owns the workspace."""

    def __init__(self, database: Database) -> None:
        self.owner = login_name()
        rows = database.read_now(lambda c: c.execute(select(tables.people)).all())
        self._known = {row.name: _person(row) for row in rows}
        if self.owner not in self._known:
            database.submit(lambda t: self._insert(t, Person(self.owner, ADMIN, time.time()))).result()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def role(self, name: str) -> Role | None:
        """A person's role; None: they may do nothing."""
        if name == self.owner:
            return ADMIN
        person = self._known.get(name)
        return person.role if person is not None and person.is_active else None

    def unix_user(self, name: str) -> str:
        """Somebody's account on the server's machine; empty where none was named."""
        person = self._known.get(name)
        return (person.unix_user or "") if person is not None else ""

    @property
    def is_shared(self) -> bool:
        """Whether several people use the workspace."""
        return any(person.is_active and person.name != self.owner for person in self.all())

    def all(self) -> list[Person]:
        """Everybody who was not removed."""
        return [person for person in sorted(self._known.values(), key=_name) if person.removed_at is None]

    def find(self, name: str) -> Person:
        person = self._known.get(name)
        if person is None or person.removed_at is not None:
            known = ", ".join(item.name for item in self.all())
            raise errors.NotFound(f"nobody here is called {name!r}", f"Known here: {known}. `muster user list`.")
        return person

    def by_sso(self, identity: str) -> Person | None:
        """The person with this identity at the sign-on service."""
        return next((person for person in self.all() if person.sso == identity), None)

    def view(self, person: Person) -> PersonView:
        return PersonView(
            person.name,
            ADMIN if person.name == self.owner else person.role,
            person.created_at,
            person.created_by,
            person.disabled_at is not None,
            person.name == self.owner,
            person.unix_user,
        )

    def add(
        self,
        transaction: Transaction,
        name: str,
        role: Role,
        by: str,
        sso: str | None = None,
        unix_user: str | None = None,
    ) -> Person:
        """Somebody new."""
        check_account(unix_user)
        known = transaction.execute(select(tables.people).where(tables.people.c.name == name)).first()
        if known is not None:
            was = "was removed, and what they made still has the name" if known.removed_at else "is here already"
            raise errors.Conflict(f"somebody called {name!r} {was}", "Choose another name; `muster user list`.")
        person = Person(name, role, time.time(), by, sso=sso, unix_user=unix_user)
        self._insert(transaction, person)
        return person

    def change(
        self,
        transaction: Transaction,
        name: str,
        role: Role | None = None,
        disabled: bool | None = None,
        unix_user: str | None = None,
    ) -> Person:
        """Give somebody another role or account, lock them out, or let them in again."""
        check_account(unix_user)
        person = self._row(transaction, name)
        if role is not None or disabled is not None:
            self._refuse_owner(person)
        if unix_user is not None:
            person = replace(person, unix_user=unix_user or None)
        if disabled is not None:
            person = replace(person, disabled_at=time.time() if disabled else None)
        return self._update(transaction, replace(person, role=role or person.role))

    def remove(self, transaction: Transaction, name: str) -> None:
        """Remove somebody; the name is not used again."""
        person = self._row(transaction, name)
        self._refuse_owner(person)
        self._update(transaction, replace(person, removed_at=time.time()))

    def bind(self, transaction: Transaction, name: str, sso: str) -> None:
        """Bind an identity of the sign-on service to a person."""
        self._update(transaction, replace(self._row(transaction, name), sso=sso))

    def _row(self, transaction: Transaction, name: str) -> Person:
        """A person as recorded, with changes by other writes of the same commit."""
        row = transaction.execute(select(tables.people).where(tables.people.c.name == name)).first()
        return self.find(name) if row is None or row.removed_at is not None else _person(row)

    def _refuse_owner(self, person: Person) -> None:
        if person.name == self.owner:
            raise errors.Conflict(
                f"{person.name} owns the workspace's folder, and so stays its administrator",
                "Anybody who can read the folder has its keys. Move the workspace to give it to somebody else.",
            )

    def _insert(self, transaction: Transaction, person: Person) -> None:
        transaction.execute(insert(tables.people).values(**vars(person)))
        transaction.after_commit.append(self._remembering(person))

    def _update(self, transaction: Transaction, person: Person) -> Person:
        table = tables.people
        transaction.execute(update(table).where(table.c.name == person.name).values(**vars(person)))
        transaction.after_commit.append(self._remembering(person))
        return person

    def _remembering(self, person: Person) -> Callable[[], None]:
        # A new dict, so that readers of the old one are not disturbed.
        def remember() -> None:
            self._known = {**self._known, person.name: person}

        return remember


def check_account(unix_user: str | None) -> None:
    """Refuse an account that does not exist here, or has more rights than a person should."""
    if not unix_user:
        return
    if os.getuid() != 0:
        raise errors.Conflict(
            f"the server does not run as root, so nobody's ranks can run as {unix_user!r}",
            "Start it as root to give people accounts; otherwise their ranks run in a sandbox as the server's account.",
        )
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError as error:
        raise errors.NotFound(
            f"there is no account {unix_user!r} on the server's machine", "Make one with `useradd` first."
        ) from error
    if entry.pw_uid == 0:
        raise errors.UserError(f"the account {unix_user!r} is root", "Name an account of the person's own.")


def login_name() -> str:
    """The name of the workspace's owner: that of the account that runs the server."""
    try:
        name = re.sub(r"[^a-z0-9_.@+-]", "-", pwd.getpwuid(os.getuid()).pw_name.lower())
    except KeyError:
        name = ""
    return name if PERSON.fullmatch(name) else "owner"


def _name(person: Person) -> str:
    return person.name


def _person(row: Row[Any]) -> Person:
    return Person(**row._mapping)
