"""People, their tokens, and what they did."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final, Literal, get_args

from muster.defaults import INVITE_S, TOKEN_MOST_S, TOKEN_S
from muster.wire.codec import OMIT
from muster.wire.message import check_pattern, wire

Role = Literal["admin", "member", "reader"]
ADMIN: Final = "admin"
MEMBER: Final = "member"
READER: Final = "reader"
ROLES: tuple[Role, ...] = get_args(Role)
"""From the most to the fewest rights."""
PERSON = re.compile(r"[a-z0-9][a-z0-9_.@+-]{0,63}")
UNIX_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LABEL_LENGTH = 100
INVITE_PREFIX = "muster_invite_"


@wire
class NewPerson:
    """The body of `POST people`."""

    name: str
    role: Role = MEMBER
    unix_user: str | None = field(default=None, metadata=OMIT)
    """Their account on the server's machine."""

    def __post_init__(self) -> None:
        check_person(self.name)
        check_unix_user(self.unix_user)


@wire
class PersonChanges:
    """The body of `PATCH people/NAME`."""

    role: Role | None = field(default=None, metadata=OMIT)
    disabled: bool | None = field(default=None, metadata=OMIT)
    unix_user: str | None = field(default=None, metadata=OMIT)
    """Empty: remove it."""

    def __post_init__(self) -> None:
        check_unix_user(self.unix_user)


@wire
class PersonView:
    """Somebody who may use the workspace."""

    name: str
    role: Role
    created_at: float
    created_by: str | None
    disabled: bool
    owner: bool
    """The workspace's folder belongs to them: they stay an administrator."""
    unix_user: str | None = field(default=None, metadata=OMIT)
    """Their account on the server's machine: their ranks run as it where the server is root."""


@wire
class NewToken:
    """The body of `POST tokens`."""

    label: str = ""
    person: str | None = None
    """The owner of the token; the caller unless an administrator names somebody."""
    role: Role | None = None
    """A role with fewer rights than the person's own."""
    lifetime_s: float | None = TOKEN_S
    """None: it does not expire."""

    def __post_init__(self) -> None:
        check_label(self.label)
        check_lifetime(self.lifetime_s, TOKEN_MOST_S)


@wire
class TokenView:
    """A token without its secret."""

    id: str
    person: str
    role: Role
    label: str
    created_at: float
    expires_at: float | None
    used_at: float | None
    """When it was last used, to within some minutes."""
    kind: Literal["token", "invite"] = "token"


@wire
class IssuedToken(TokenView):
    """A token with its secret, which is shown only once."""

    token: str = field(default="", repr=False)


@wire
class Invitation(IssuedToken):
    """What a colleague logs in with for the first time."""

    fingerprint: str | None = None
    """The fingerprint of the server's certificate, where it is self-signed."""


@wire
class NewInvite:
    """The body of `POST people/NAME/invite`."""

    lifetime_s: float = INVITE_S

    def __post_init__(self) -> None:
        check_lifetime(self.lifetime_s, TOKEN_MOST_S)


@wire
class Join:
    """The body of `POST join`: an invitation, which can be used once."""

    invite: str = field(repr=False)
    label: str = ""

    def __post_init__(self) -> None:
        check_label(self.label)


@wire
class Myself:
    """Who the caller is to the server."""

    name: str
    role: str
    workspace: str
    shared: bool
    """Several people use the workspace."""


@wire
class AuditEntry:
    """Somebody did something, or tried to."""

    id: int
    at: float
    who: str
    role: str
    token: str
    """The id of the token; empty where it was not a person's."""
    source: str
    """The address that it came from."""
    action: str
    target: str
    outcome: Literal["done", "refused"]
    detail: str


def check_person(name: str) -> None:
    """Refuse what cannot be the name of a person."""
    allowed = "small letters, digits, '_', '.', '@', '+' and '-', at most 64, the first a letter or digit"
    check_pattern("the name", name, PERSON, allowed)


def check_unix_user(name: str | None) -> None:
    """Refuse what cannot be the name of an account."""
    if name:
        check_pattern("the account", name, UNIX_USER, "what `useradd` takes: letters, digits, '_', '.' and '-'")


def check_label(label: str) -> None:
    if len(label) > _LABEL_LENGTH or not label.isprintable():
        raise ValueError(f"label {label[:80]!r} is not valid: use at most {_LABEL_LENGTH} printable characters")


def check_lifetime(lifetime_s: float | None, most_s: float) -> None:
    if lifetime_s is not None and not 0 < lifetime_s <= most_s:
        raise ValueError(f"lifetime_s {lifetime_s!r} is out of range: use more than 0, at most {most_s:g}")


@wire
class SsoView:
    """The sign-on service of the workspace."""

    issuer: str
    client_id: str


@wire
class SsoLogin:
    """The body of `POST sso`: an ID token, signed by the sign-on service."""

    id_token: str = field(repr=False)
    label: str = ""

    def __post_init__(self) -> None:
        check_label(self.label)
