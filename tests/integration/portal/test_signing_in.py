"""Who may look, and who may not: sign-in, roles, requests of other sites, and the content-security policy."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, expect
from tests.conftest import MUSTER
from tests.integration.portal.conftest import Portal
from tests.sites import sign_on

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.wire.people import READER


def test_a_link_signs_in_once(portal: Portal) -> None:
    link = portal.link()
    page = portal.context().new_page()
    page.goto(link)
    expect(page.get_by_text("Sign out")).to_be_visible()
    assert "link=" not in page.url
    cookies = page.context.cookies()
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]
    assert page.evaluate("document.cookie") == ""
    other = portal.context().new_page()
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("was used, or has expired")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Or with a token")).to_be_visible()
    assert (
        page.request.get(
            f"{portal.url}/api/v1/runs", headers={"Cookie": f"{cookies[0]['name']}={cookies[0]['value']}"}
        ).status
        == 403
    )


def test_a_reader_signs_in_with_a_token_and_changes_nothing(portal: Portal) -> None:
    client = portal.site.client
    client.add_person("rea", READER)
    made = client.create_token("portal", person="rea")
    run = portal.train(steps=2, name="readable")
    portal.site.wait(run)
    page = portal.context().new_page()
    page.goto(f"{portal.url}/portal/runs/{run}")
    page.get_by_label("Or with a token").fill("muster_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.get_by_label("Or with a token").fill(made.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="readable")).to_be_visible()
    expect(page.get_by_role("button", name="Run again")).to_have_count(0)
    csrf = page.evaluate("fetch('/api/v1/session').then(answer => answer.json())")["csrf"]
    refused = page.evaluate(
        "([run, csrf]) => fetch(`/api/v1/runs/${run}`, {method: 'DELETE', headers: {'Muster-Csrf': csrf}})"
        ".then(answer => answer.status)",
        [run, csrf],
    )
    assert refused == 403
    # A session ends with the token that it was begun with.
    client.revoke_token(made.id)
    # The page may notice first, and load itself anew.
    with suppress(Error):
        page.reload()
    expect(page.get_by_label("Or with a token")).to_be_visible()


def test_another_site_can_make_the_browser_change_nothing(portal: Portal) -> None:
    run = portal.train(steps=2, name="target")
    portal.site.wait(run)
    page = portal.page("/")
    without = "run => fetch(`/api/v1/runs/${run}`, {method: 'DELETE'}).then(answer => answer.status)"
    assert page.evaluate(without, run) == 403
    # Another port of this machine has the same cookies, and is another origin.
    with elsewhere() as other:
        page.goto(other)
        ways = {"mode": "'no-cors', method: 'POST', body: '{}'", "credentials": "'include', method: 'DELETE'"}
        for name, more in ways.items():
            asked = f"fetch('{portal.url}/api/v1/runs/{run}', {{credentials: 'include', {name}: {more}}})"
            page.evaluate(f"{asked}.then(answer => answer.status, () => 0)")
        reading = (
            f"fetch('{portal.url}/api/v1/session', {{credentials: 'include'}}).then(answer => answer.text(), () => '')"
        )
        assert page.evaluate(reading) == ""
    assert portal.site.view(run)["status"] == "Completed"


@contextmanager
def elsewhere() -> Iterator[str]:
    """A site of somebody else on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<p>elsewhere</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def test_no_foreign_code_runs_in_a_page(portal: Portal) -> None:
    page = portal.context().new_page()
    answer = page.goto(f"{portal.url}/portal/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))"
    )
    assert page.evaluate("window.hacked") is None
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(portal.link())
    expect(page.get_by_text("Sign out")).to_be_visible()
    assert all(url.startswith(portal.url) for url in asked), asked


def test_a_team_server_serves_the_portal_over_tls(portal: Portal, team: str) -> None:
    token = subprocess.run([MUSTER, "up", "--print-token"], capture_output=True, text=True, check=True).stdout.strip()
    page = portal.context().new_page()
    page.goto(f"{team}/")
    page.get_by_label("Or with a token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert page.context.cookies()[0]["secure"]


@pytest.fixture
def issuer(workspace: Path) -> str:
    return sign_on.named(workspace)


def test_people_sign_on_at_their_service_from_the_page(
    issuer: str, team: str, browser: Browser, workspace: Path
) -> None:
    connect(find_workspace(workspace)).add_person("ada@example.org", READER)
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    with sign_on.serving(issuer, team):
        page.goto(f"{team}/portal/clusters")
        page.get_by_role("link", name="Sign in at").click()
        page.locator("input[name=login]").fill("ada@example.org")
        page.locator("input[name=password]").fill("x")
        page.get_by_role("button", name="Sign-in").click()
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading", name="Clusters")).to_be_visible()
        expect(page.locator(".who")).to_contain_text("ada@example.org")
        assert page.url == f"{team}/portal/clusters"
        # What another browser was given opens nothing here, and neither does what nobody gave.
        other = browser.new_context(ignore_https_errors=True).new_page()
        other.goto(f"{team}/portal/sso/back?code=stolen&state=made-up")
        expect(other.get_by_text("was not begun in this browser")).to_be_visible()
        other.goto(f"{team}/portal/sso?to=https://elsewhere.example/")
        other.locator("input[name=login]").fill("eve@example.org")
        other.locator("input[name=password]").fill("x")
        other.get_by_role("button", name="Sign-in").click()
        other.get_by_role("button", name="Continue").click()
        expect(other.get_by_text("eve@example.org may not use this workspace")).to_be_visible()
    other.goto(f"{team}/portal/sso")
    expect(other.get_by_text("the sign-on service does not answer")).to_be_visible()
    context.close()
