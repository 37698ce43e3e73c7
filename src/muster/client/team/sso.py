"""Signing on at a team's sign-on service from a terminal: a code is confirmed in a browser, on any machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from muster.defaults import CONNECT_S
from muster.errors import AccessDenied, ServerUnavailable
from muster.host.http import is_loopback
from muster.wire.people import SsoView

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_SCOPE = "openid email"
_WAIT_S = 5.0


@dataclass(frozen=True)
class Code:
    """What the person has to do in a browser."""

    url: str
    code: str
    whole_url: str
    """The URL with the code in it; empty where the service gives none."""


def id_token(sso: SsoView, show: Callable[[Code], None], pause: Callable[[float], None] = time.sleep) -> str:
    """Have the person sign on, and return their ID token; `show` displays the URL and the code."""
    described = _call(f"{_secure(sso.issuer)}/.well-known/openid-configuration")
    asked_at = described.get("device_authorization_endpoint")
    token_url = described.get("token_endpoint")
    if not asked_at or not token_url:
        raise AccessDenied(
            f"{sso.issuer} knows no sign-on by a code (device authorization)",
            "Ask for it to be switched on, or use a token: `muster user invite`.",
        )
    begun = _call(_secure(asked_at), {"client_id": sso.client_id, "scope": _SCOPE})
    show(Code(begun["verification_uri"], begun["user_code"], begun.get("verification_uri_complete", "")))
    wait_s, deadline = float(begun.get("interval") or _WAIT_S), time.monotonic() + float(begun.get("expires_in") or 600)
    request = {"grant_type": _GRANT, "client_id": sso.client_id, "device_code": begun["device_code"]}
    while time.monotonic() < deadline:
        pause(wait_s)
        answer = _call(_secure(token_url), request, refusals=True)
        if token := answer.get("id_token"):
            return token
        if answer.get("error") == "slow_down":
            wait_s += _WAIT_S
        elif answer.get("error") != "authorization_pending":
            raise AccessDenied(f"{sso.issuer} refused the sign-on: {answer.get('error_description') or answer}")
    raise AccessDenied("nobody signed in in time", "Try it again.")


def _call(url: str, form: Mapping[str, str] | None = None, refusals: bool = False) -> Mapping[str, str]:
    body = urlencode(form).encode() if form is not None else None
    try:
        with urlopen(Request(url, body, {"Accept": "application/json"}), timeout=CONNECT_S) as answer:
            found: Mapping[str, str] = json.loads(answer.read())
            return found
    except HTTPError as error:
        if refusals and error.code == 400:
            refused: Mapping[str, str] = json.loads(error.read())
            return refused
        raise ServerUnavailable(f"the sign-on service answered {error.code} at {url}") from error
    except (OSError, ValueError) as error:
        raise ServerUnavailable(f"the sign-on service does not answer at {url}: {error}") from error


def _secure(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise AccessDenied(f"the sign-on service {url} has no TLS", "Whoever listens could sign on as you.")
    return url
