"""Sessions of browsers: how somebody signs in without a bearer token in every request."""

from __future__ import annotations

from dataclasses import field

from muster.wire.message import wire
from muster.wire.people import Role

CSRF_HEADER = "Muster-Csrf"
"""Header of every request of a session that changes something; other sites cannot know its value."""


@wire
class SignInLink:
    """The answer to `POST sign-in-links`: a short-lived secret that opens one session."""

    link: str = field(repr=False)
    expires_at: float
    url: str
    """Where a browser reaches the portal."""


@wire
class SignIn:
    """The body of `POST sign-in`: the secret of a link, or a token."""

    link: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if bool(self.link) == bool(self.token):
            raise ValueError("give either the secret of a link or a token")


@wire
class Session:
    """Who is signed in."""

    name: str
    role: Role
    csrf: str = field(repr=False)
    workspace: str
    shared: bool
    """Several people use the workspace."""
    version: str
