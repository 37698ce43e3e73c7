"""Muster's own signed grants: to read or write one file or folder of a store, for a while. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass

from muster.errors import AccessDenied
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import READ, WRITE, Scope

_PREFIX = "mg1"
_CLOCK_SKEW_S = 5.0


@dataclass(frozen=True)
class Grant:
    """What its holder may do."""

    id: str
    store: str
    path: str
    folder: bool
    scope: Scope
    """`read` or `write`; `write` also allows reading, listing and removing what is below."""
    not_before: float
    expires_at: float
    subject: str = ""
    """For whom it was made: `run/RUN/ATTEMPT` or `user/NAME`."""


def new_id() -> str:
    return secrets.token_hex(8)


def sign(grant: Grant, key: bytes) -> str:
    """The token that its holder presents."""
    payload = json.dumps(to_json(grant), separators=(",", ":"), sort_keys=True).encode()
    return f"{_PREFIX}.{_encode(payload)}.{_encode(_mac(payload, key))}"


def verify(token: str, key: bytes, now: float) -> Grant:
    """The grant behind a token; raises AccessDenied if it is forged, not valid yet or expired."""
    try:
        prefix, body, mac = token.split(".")
        payload = _decode(body)
        given = _decode(mac)
    except (ValueError, binascii.Error):
        raise AccessDenied("this is no grant", "Ask for a new one.") from None
    # The signature first: nothing in an unsigned text is trusted.
    if prefix != _PREFIX or not hmac.compare_digest(given, _mac(payload, key)):
        raise AccessDenied("the grant's signature is wrong: it was changed, or another workspace made it", _ASK)
    grant = from_json(Grant, json.loads(payload))
    if now < grant.not_before - _CLOCK_SKEW_S:
        raise AccessDenied(
            f"the grant is not valid yet: it begins in {grant.not_before - now:.0f} s", "Wait, or set the clock."
        )
    if now >= grant.expires_at:
        raise AccessDenied(f"the grant expired {now - grant.expires_at:.0f} s ago", _ASK)
    return grant


def check(grant: Grant, *, store: str, path: str, scope: Scope) -> None:
    """Refuse what the grant does not cover."""
    if grant.store != store or not covers(grant.path, path, grant.folder):
        below = "everything below " if grant.folder else ""
        raise AccessDenied(f"the grant covers {below}{grant.store}/{grant.path}, not {store}/{path}", _ASK)
    if scope == WRITE and grant.scope != WRITE:
        raise AccessDenied(f"the grant allows to {READ}, not to {WRITE}, {store}/{path}", _ASK)


def covers(granted: str, path: str, folder: bool) -> bool:
    """Whether a path is the granted one, or below it where that is a folder."""
    if path == granted:
        return True
    return folder and (not granted or path.startswith(f"{granted}/"))


_ASK = "Ask for a new one; a run's own are renewed while it runs."


def _mac(payload: bytes, key: bytes) -> bytes:
    return hmac.new(key, payload, hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
