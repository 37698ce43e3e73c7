"""Signing in to the portal at the team's sign-on service: the browser goes there and comes back with a code."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import html
import secrets
import time
from urllib.parse import quote, urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from muster import errors
from muster.server.http.dependencies import ContextOf
from muster.server.people import signing_on, sso
from muster.server.portal.assets import BASE_PATH, portal_assets
from muster.server.portal.pages import HEADERS

router = APIRouter(include_in_schema=False)

_PATH = "/portal/sso"
_BACK = f"{_PATH}/back"
_COOKIE = "muster_sso"
_SCOPE = "openid email"
_WAIT_S = 600
"""How long a person may take at the service."""


@router.get(_PATH)
async def leave(request: Request, context: ContextOf, to: str = "/portal/") -> Response:
    """Redirect a browser to the sign-on service. A cookie holds what it must present on its return."""
    try:
        state = _state(context)
        service = await asyncio.to_thread(state.service)
        address = service.get("authorization_endpoint")
        if not isinstance(address, str) or urlsplit(address).scheme not in ("https", "http"):
            raise errors.UserError(f"{state.config.issuer} names no page where people sign on", "Use `muster login`.")
    except errors.MusterError as error:
        return _not_signed_in(error)
    verifier, begun = secrets.token_urlsafe(48), int(time.time())
    kept = f"{begun}.{verifier}.{base64.urlsafe_b64encode(_inside(to).encode()).decode()}"
    parameters = {
        "client_id": state.config.client_id,
        "response_type": "code",
        "scope": _SCOPE,
        "redirect_uri": _redirect_uri(request),
        "state": _digest(kept),
        "code_challenge": _digest(verifier),
        "code_challenge_method": "S256",
    }
    headers = {"Set-Cookie": _cookie(request, kept, _WAIT_S), "Cache-Control": "no-store"}
    joint = "&" if "?" in address else "?"
    return RedirectResponse(f"{address}{joint}{urlencode(parameters)}", 302, headers)


@router.get(_BACK)
async def come_back(request: Request, context: ContextOf, code: str = "", state: str = "", error: str = "") -> Response:
    """Exchange the code for a sign-in link, which the page uses at once."""
    try:
        verifier, to = _begun_here(request.cookies.get(_COOKIE, ""), state)
        if error or not code:
            raise errors.AccessDenied(f"the sign-on service says: {error[:100] or 'nothing'}", "Sign in again.")
        known = _state(context)
        found = await asyncio.to_thread(known.redeem, code, verifier, _redirect_uri(request))
        made = await signing_on.let_in(context, known, found, "single sign-on, portal")
    except errors.MusterError as refused:
        return _not_signed_in(refused)
    secret, _ = context.portal.new_link(context.tokens.caller(f"Bearer {made.token}"), time.time())
    # A session's cookie is not sent on a redirect from another site: the page requests it from here.
    where = f"/portal/sign-in#link={secret}&to={quote(to, safe='')}"
    return RedirectResponse(where, 302, {"Set-Cookie": _cookie(request, "", 0), "Cache-Control": "no-store"})


def _begun_here(kept: str, state: str) -> tuple[str, str]:
    """The browser's cookie: the secret behind the code's challenge, and the page it wanted."""
    begun, _, rest = kept.partition(".")
    verifier, _, to = rest.partition(".")
    if not begun.isdigit() or not hmac.compare_digest(_digest(kept).encode(), state.encode()):
        raise errors.AccessDenied("this sign-on was not begun in this browser", "Sign in again, in one window.")
    if not 0 <= time.time() - int(begun) <= _WAIT_S:
        raise errors.AccessDenied("the sign-on took too long", "Sign in again.")
    return verifier, _inside(base64.urlsafe_b64decode(to).decode(errors="replace"))


def _state(context: ContextOf) -> sso.SsoState:
    if context.sso is None:
        raise errors.NotFound("this workspace has no single sign-on", "Sign in with a token.")
    return context.sso


def _inside(to: str) -> str:
    return to if to.startswith("/portal/") and len(to) < 1000 else "/portal/"


def _redirect_uri(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{_BACK}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _cookie(request: Request, value: str, seconds: int) -> str:
    # The service redirects the browser back from another site: the cookie must be sent then.
    secured = "; Secure" if request.url.scheme == "https" else ""
    return f"{_COOKIE}={value}; Path={_PATH}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secured}"


def _not_signed_in(error: errors.MusterError) -> Response:
    style = f"{BASE_PATH}/{portal_assets().digest}/style.css"
    paragraphs = " ".join(f"<p>{html.escape(text)}</p>" for text in (error.message, error.hint) if text)
    page = (
        f'<!doctype html><html lang="en"><title>Muster</title><link rel="stylesheet" href="{style}">'
        f'<main class="signin"><h1>Not signed in</h1>{paragraphs}'
        '<p><a href="/portal/sign-in">Sign in</a></p></main></html>'
    )
    status = 403 if isinstance(error, errors.AccessDenied) else 404 if isinstance(error, errors.NotFound) else 502
    return HTMLResponse(page, status, {**HEADERS, "Cache-Control": "no-store"})
