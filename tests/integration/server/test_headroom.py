"""Slow and greedy connections take nothing from the others: health, heartbeats and submissions answer meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

ANSWER_S = 10.0
"""Far more than an answer takes; without bounds it never comes."""


def dial(site: Site) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(site.client.address.url.removeprefix("unix:"))
    return connection


def request(site: Site, method: str, path: str, *headers: str) -> bytes:
    lines = [
        f"{method} /api/v1{path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {site.client.address.token}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def well(site: Site, key: str) -> None:
    """Everything that must answer does: asked through a connection of its own with a deadline."""
    for path in ("/health", "/runs?limit=1"):
        with dial(site) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(request(site, "GET", path))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert site.view(site.run(command="true", display_name=key))["display_name"] == key


def test_slow_uploads_hold_up_nobody_else(site: Site, held: ExitStack) -> None:
    for number in range(40):
        connection = held.enter_context(dial(site))
        length = 10 if number % 2 else 100 << 20
        connection.sendall(request(site, "PUT", f"/data/workspaceblobstore/slow/{number}", f"Content-Length: {length}"))
        # Half of them are long enough to be stored while they arrive.
        connection.sendall(b"x" if number % 2 else b"x" * (2 << 20))
    well(site, "beside uploads")
    run = site.run(command="true")
    assert site.wait(run)["status"] == "Completed", "the agent's deliveries are taken too"
    with dial(site) as quick:
        quick.sendall(request(site, "PUT", "/data/workspaceblobstore/quick", "Content-Length: 5") + b"hello")
        assert quick.recv(65536).startswith(b"HTTP/1.1 201"), "and so is another upload"


def test_followers_and_slow_readers_are_answered_and_hold_up_nobody(site: Site, held: ExitStack) -> None:
    run = site.run(
        command="for i in $(seq 40); do head -c 100000 /dev/zero | tr '\\0' x; echo; sleep 0.05; done; sleep 60"
    )
    site.wait(run, "Running")
    followers = [held.enter_context(dial(site)) for _ in range(150)]
    for connection in followers:
        # None of them reads what it asks for.
        connection.sendall(request(site, "GET", f"/runs/{run}/stream"))
    well(site, "beside followers")
    for connection in followers[::50]:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    site.client.cancel(run, force=True)
    assert site.wait(run)["status"] == "Canceled"


def test_headers_without_end_are_cut_off_and_of_many_the_oldest_go(site: Site, held: ExitStack) -> None:
    began = site.server().memory_info().rss
    greedy = [held.enter_context(dial(site)) for _ in range(64)]
    cut = 0
    for connection in greedy:
        try:
            connection.sendall(b"GET /api/v1/health HTTP/1.1\r\nX-Long: ")
            for _ in range(16):
                connection.sendall(b"x" * (64 << 10))
        except OSError:
            cut += 1
    assert cut == len(greedy)
    assert site.server().memory_info().rss - began < 48 << 20
    waiting = [held.enter_context(dial(site)) for _ in range(400)]
    for connection in waiting:
        try:
            connection.sendall(b"GET /api/v1/health HTTP/1.1\r\nX-Slow: ")
        except OSError:
            continue
    well(site, "beside unfinished requests")

    def is_cut(connection: socket.socket) -> bool:
        connection.settimeout(0.01)
        try:
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    wait_until(lambda: is_cut(waiting[0]), 20, "the end of the oldest")
