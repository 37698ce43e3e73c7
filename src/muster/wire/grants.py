"""Grants of people to one file or folder."""

from __future__ import annotations

from dataclasses import field

from muster.defaults import GRANT_MOST_S, GRANT_S
from muster.wire.access import READ, Scope
from muster.wire.message import wire


@wire
class NewGrant:
    """The body of `POST grants`."""

    address: str
    scope: Scope = READ
    folder: bool = True
    lifetime_s: float = GRANT_S

    def __post_init__(self) -> None:
        if not 0 < self.lifetime_s <= GRANT_MOST_S:
            raise ValueError(
                f"lifetime_s {self.lifetime_s!r} is out of range: use more than 0, at most {GRANT_MOST_S:g}"
            )


@wire
class GrantBrief:
    """What a grant is for."""

    id: str
    store: str
    path: str
    scope: Scope
    subject: str
    created_at: float
    expires_at: float


@wire
class GrantView(GrantBrief):
    """A grant that holds."""

    revoked_at: float | None = None


@wire
class IssuedGrant(GrantBrief):
    """A grant with its token, which is seen only once."""

    url: str
    token: str = field(repr=False)
