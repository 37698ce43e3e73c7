"""Sessions of browsers. Each is a token like any other, kept in a cookie that scripts cannot read."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from muster import errors
from muster.control.access import Caller
from muster.defaults import SESSION_S, SIGN_IN_LINK_S
from muster.server.database.connection import Transaction
from muster.server.people.access import Tokens, session_label
from muster.wire.portal.sessions import CSRF_HEADER

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGES = ("same-origin", "none")
_MOST_LINKS = 1000
SANDBOX = (
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Header of responses to sessions: a file that a job wrote must not run as a page of this server."""


@dataclass
class PortalState:
    """Issued sign-in links, and the server's URL for browsers."""

    links: dict[str, tuple[Caller, float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: Callable[[], Awaitable[str]] | None = None
    """The server's URL for browsers; opens a loopback port where there is none yet."""

    def new_link(self, caller: Caller, now: float) -> tuple[str, float]:
        """Create a secret that opens one session for the caller."""
        secret, until = secrets.token_urlsafe(24), now + SIGN_IN_LINK_S
        with self.lock:
            self.links = {key: kept for key, kept in self.links.items() if kept[1] > now}
            if len(self.links) >= _MOST_LINKS:
                self.links.pop(next(iter(self.links)))
            self.links[_hash(secret)] = (caller, until)
        return secret, until

    def take(self, secret: str, now: float) -> Caller:
        """The owner of a link, which is used up by this."""
        with self.lock:
            found = self.links.pop(_hash(secret), None)
        if found is None or found[1] <= now:
            raise errors.AccessDenied(
                "the link was used, or has expired", "`muster portal` opens another one; or sign in with a token."
            )
        return found[0]


def begin(tokens: Tokens, transaction: Transaction, caller: Caller) -> str:
    """The token of a new session, with the rights of its opener's token, and ending no later."""
    if not caller.is_person or not tokens.holds(caller):
        raise errors.AccessDenied(
            "only people sign in, with a token that is still valid", "`muster token create` makes one."
        )
    until = tokens.expiry(caller.token)
    left_s = SESSION_S if until is None else min(SESSION_S, until - time.time())
    token, _ = tokens.add(transaction, caller.role, caller.subject, max(1.0, left_s), session_label(caller.token))
    return token


def cookie_name(workspace_id: str) -> str:
    """The cookie's name, one per workspace: servers on one machine share the host, and so the cookies."""
    return f"muster_{workspace_id[:12]}"


def token_in(headers: Mapping[bytes, str], workspace_id: str) -> str | None:
    """The session's token in a request's cookies."""
    if not (text := headers.get(b"cookie")):
        return None
    try:
        found = SimpleCookie(text).get(cookie_name(workspace_id))
    except CookieError:
        return None
    return found.value if found is not None and found.value else None


def check_origin(method: str, headers: Mapping[bytes, str], token: str) -> None:
    """Refuse requests that another site, or another port of this machine, makes a browser send."""
    if headers.get(b"sec-fetch-site", "none") not in _OWN_PAGES:
        raise errors.AccessDenied("this was asked for by a page of another site", "Open the portal itself.")
    shown = headers.get(CSRF_HEADER.lower().encode(), "")
    if method not in _SAFE and not hmac.compare_digest(shown.encode(), csrf_of(token).encode()):
        raise errors.AccessDenied(
            f"a session changes something only with its {CSRF_HEADER} header", "Reload the page; or use a token."
        )


def csrf_of(token: str) -> str:
    """The CSRF token that the portal sends with every change; it does not reveal the session's token."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()[:32]


def cookie(workspace_id: str, token: str, *, is_secure: bool, seconds: float) -> str:
    """The `Set-Cookie` header of a session; an empty token ends it."""
    secured = "; Secure" if is_secure else ""
    name = cookie_name(workspace_id)
    return f"{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(seconds)}{secured}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
