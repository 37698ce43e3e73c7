"""Sessions of browsers: links that are good once, cookies, and what other sites may not do with them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.unit.server.conftest import Server

from muster import errors
from muster.control.access import Caller
from muster.defaults import SIGN_IN_LINK_S
from muster.server.portal import sessions
from muster.server.portal.assets import portal_assets
from muster.server.portal.sessions import PortalState

OWNER = Caller("admin", "ada", "0123456789ab")


def headers(**given: str) -> dict[bytes, str]:
    return {name.replace("_", "-").encode(): value for name, value in given.items()}


def test_a_link_is_good_once_and_for_minutes() -> None:
    state = PortalState()
    secret, until = state.new_link(OWNER, now=100.0)
    assert until == 100.0 + SIGN_IN_LINK_S
    assert state.take(secret, now=101.0) == OWNER
    with pytest.raises(errors.AccessDenied, match="was used"):
        state.take(secret, now=101.0)
    late, _ = state.new_link(OWNER, now=100.0)
    with pytest.raises(errors.AccessDenied):
        state.take(late, now=100.0 + SIGN_IN_LINK_S)


def test_links_are_not_piled_up() -> None:
    state = PortalState()
    first, _ = state.new_link(OWNER, now=0.0)
    for _ in range(1000):
        state.new_link(OWNER, now=1.0)
    assert len(state.links) == 1000
    with pytest.raises(errors.AccessDenied):
        state.take(first, now=1.0)


def test_a_cookie_of_another_workspace_or_in_no_form_is_none() -> None:
    given = f"{sessions.cookie_name('other')}=secret; {sessions.cookie_name('mine')}=token"
    assert sessions.token_in(headers(cookie=given), "mine") == "token"
    assert sessions.token_in(headers(cookie=given), "third") is None
    assert sessions.token_in(headers(cookie='\x00=;;;;="\\'), "mine") is None
    assert sessions.token_in({}, "mine") is None


@pytest.mark.parametrize(
    ("method", "given", "is_admitted"),
    [
        ("GET", {}, True),
        ("GET", {"sec_fetch_site": "same-origin"}, True),
        ("GET", {"sec_fetch_site": "same-site"}, False),
        ("GET", {"sec_fetch_site": "cross-site"}, False),
        ("POST", {}, False),
        ("POST", {"muster_csrf": sessions.csrf_of("token")}, True),
        ("POST", {"muster_csrf": sessions.csrf_of("token"), "sec_fetch_site": "cross-site"}, False),
        ("POST", {"muster_csrf": sessions.csrf_of("other")}, False),
        ("DELETE", {"muster_csrf": "\xff"}, False),
    ],
)
def test_only_pages_of_the_portal_use_a_session(method: str, given: dict[str, str], is_admitted: bool) -> None:
    if is_admitted:
        sessions.check_origin(method, headers(**given), "token")
        return
    with pytest.raises(errors.AccessDenied):
        sessions.check_origin(method, headers(**given), "token")


def session_of(server: Server, link: str) -> tuple[str, Any]:
    """Sign in; the cookie's token out of the store of tokens is not known, so it is taken from the answer's header."""
    sent: list[Any] = []

    async def enter() -> None:
        body = [json.dumps({"link": link}).encode()]

        async def receive() -> Any:
            return {"type": "http.request", "body": body.pop()}

        async def send(message: Any) -> None:
            sent.append(message)

        given = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/sign-in", "query_string": b"", "headers": given}
        await server.app({**scope, "scheme": "https", "server": ("x", 1)}, receive, send)

    server.runner.run(enter())
    cookie = dict(sent[0]["headers"])[b"set-cookie"].decode()
    assert "HttpOnly; SameSite=Strict" in cookie
    assert "Secure" in cookie
    return cookie.partition(";")[0], json.loads(sent[1]["body"])


def test_a_session_may_what_its_opener_may_and_ends_with_it(server: Server) -> None:
    server.call("POST", "/people", {"name": "rea", "role": "reader"})
    _, made = server.call("POST", "/tokens", {"person": "rea", "label": "mine"})
    reader = {"authorization": f"Bearer {made['token']}"}
    status, link = server.call_bytes("POST", "/sign-in-links", b"", **reader)
    assert status == 201
    cookie, session = session_of(server, link["link"])
    assert (session["name"], session["role"]) == ("rea", "reader")

    def ask(method: str, path: str, body: bytes = b"", **more: str) -> int:
        given = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in {"cookie": cookie, **more}.items()
        ]
        return server.runner.run(call(server, method, path, body, given))

    assert ask("GET", "/runs") == 200
    assert ask("POST", "/gc", b"{}") == 403
    assert ask("POST", "/gc", b"{}", muster_csrf=session["csrf"], content_type="application/json") == 403
    assert server.call("DELETE", f"/tokens/{made['id']}")[0] == 204
    assert ask("GET", "/runs") == 403


async def call(server: Server, method: str, path: str, body: bytes, given: list[tuple[bytes, bytes]]) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": f"/api/v1{path}", "query_string": b"", "headers": given}
    await server.app(scope, receive, send)
    assert dict(sent[0]["headers"]).get(b"x-content-type-options") == b"nosniff" or sent[0]["status"] == 403
    return int(sent[0]["status"])


def test_an_expired_token_begins_no_session(server: Server) -> None:
    tokens = server.context.tokens
    token, kept = server.write(lambda t: tokens.add(t, "admin", tokens.people.owner, 60.0, "short"))
    cookie, _ = session_of(server, server.context.portal.new_link(tokens.caller(f"Bearer {token}"), time.time())[0])
    made = tokens.caller(f"Bearer {cookie.partition('=')[2]}")
    assert (tokens.expiry(made.token) or 0) <= (kept.expires_at or 0) + 1.0


def test_the_portal_is_small_and_whole() -> None:
    assets = portal_assets()
    sent = sum(len(asset.packed) for asset in assets.files.values()) + len(assets.page.packed)
    assert sent < 300_000, f"the first load is {sent:,} bytes compressed"
    assert f"/portal/files/{assets.digest}/app.js".encode() in assets.page.plain
    for path, asset in assets.files.items():
        if path.endswith(".js") and not path.startswith("vendor/"):
            assert b"innerHTML" not in asset.plain, f"{path} puts text into the page as markup"
