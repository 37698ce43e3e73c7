"""The front door of an endpoint against those who want more of it than an answer: raw bytes in, raw bytes out."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
import uvicorn
import yarl

from muster.scoring.door.app import App
from muster.scoring.door.table import Backend, Route, Table
from muster.scoring.listening import bounded, listener_on

INNER = "key-between-door-and-replica"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: X-Inside\r\nX-Inside: secret\r\nUpgrade: h2c\r\n"
    b"Proxy-Authenticate: Basic\r\nX-Kept: yes\r\n\r\nblue"
)


@dataclass
class Replica:
    """Takes whatever comes, and answers the same."""

    answer: bytes = ANSWER
    heard: list[bytes] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def backend(self) -> Backend:
        return Backend("run", "127.0.0.1", self.listener.getsockname()[1], True, INNER)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(1 << 20))
                connection.sendall(self.answer)


@dataclass
class Site:
    port: int
    blue: Replica
    shadow: Replica

    def say(self, text: str, body: bytes = b"") -> bytes:
        """The whole answer to raw bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(text.replace("\n", "\r\n").encode("latin-1") + b"\r\n" + body)
            if "Upgrade" in text:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            while piece := connection.recv(1 << 16):
                found += piece
                if b"\r\n\r\n" in found and (found.endswith((b"blue", b"}", b"Healthy")) or b" 400 " in found):
                    break
            return found

    def ask(self, line: str = "POST /score HTTP/1.1", *headers: str, key: str = "good", body: bytes = b"{}") -> bytes:
        listed = [line, "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {len(body)}", *headers]
        return self.say("\n".join(listed) + "\n", body)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    blue, shadow = Replica(), Replica(ANSWER.replace(b"blue", b"dark"))
    route = Route("blue", 100, 0, 20_000.0, 16, 10_000.0, False, (blue.backend,))
    copies = replace(route, name="dark", weight=0, mirror=100, backends=(shadow.backend,))
    table = Table(1, "digits", "127.0.0.1", 0, ("good", "other"), "", (route, copies))
    listener = listener_on("127.0.0.1")
    config = uvicorn.Config(lambda: None, log_level="critical", lifespan="off", http=bounded(), ws="none")
    server = uvicorn.Server(config)

    async def serve() -> None:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            config.app = App(table, session, aiohttp, lambda text: yarl.URL(text, encoded=True))
            await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    yield Site(listener.getsockname()[1], blue, shadow)
    server.should_exit = server.force_exit = True
    thread.join()
    blue.listener.close()
    shadow.listener.close()


@pytest.mark.parametrize("key", ["", "bad", "good2", "goo", "GOOD", "good\tx", INNER, "\xff\xfe", "a" * 60_000])
def test_only_the_endpoints_own_keys_open_it(site: Site, key: str) -> None:
    heard = len(site.blue.heard)
    assert site.ask(key=key).startswith((b"HTTP/1.1 401", b"HTTP/1.1 400"))
    assert len(site.blue.heard) == heard


def test_more_headers_than_a_replica_takes_are_refused_before_it_is_asked(site: Site) -> None:
    heard = len(site.blue.heard)
    assert site.ask("POST /score HTTP/1.1", *["X: y"] * 15_000).startswith(b"HTTP/1.1 431")
    assert len(site.blue.heard) == heard


def test_what_neighbours_say_to_each_other_is_not_passed_on(site: Site) -> None:
    said = site.ask(
        "POST /score HTTP/1.1", "Connection: keep-alive, X-Mine", "X-Mine: 1", "TE: trailers", "Proxy-Authorization: p",
        "Proxy-Connection: p", "Trailer: X", "X-Other: kept",
    )  # fmt: skip
    heard = site.blue.heard[-1].lower()
    assert b"x-other: kept" in heard and f"authorization: bearer {INNER}".encode() in heard
    for name in (b"x-mine", b"\nte:", b"proxy-", b"trailer", b"bearer good"):
        assert name not in heard
    assert b"x-kept: yes" in said
    for name in (b"x-inside", b"upgrade", b"proxy-authenticate", INNER.encode()):
        assert name not in said.lower()


@pytest.mark.parametrize(
    "headers",
    [
        ("Transfer-Encoding: chunked",), ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding : chunked",), ("Content-Length: 5",), ("Content-Length: +2",),
    ],
)  # fmt: skip
def test_a_body_with_two_lengths_is_refused(site: Site, headers: tuple[str, ...]) -> None:
    heard = len(site.blue.heard)
    assert site.ask("POST /score HTTP/1.1", *headers).startswith(b"HTTP/1.1 400")
    assert len(site.blue.heard) == heard


@pytest.mark.parametrize(
    "target", ["/../../etc/passwd", "/%2e%2e/%2e%2e/x", "//elsewhere/score", "/score/../internal", "/a%0d%0aX-B:%201"]
)
def test_a_path_reaches_the_replica_as_it_is_and_nobody_else(site: Site, target: str) -> None:
    site.ask(f"POST {target} HTTP/1.1")
    first = site.blue.heard[-1].splitlines()
    assert first[0] == f"POST {target} HTTP/1.1".encode()
    assert not any(line.lower().startswith(b"x-b") for line in first)


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT elsewhere:80 HTTP/1.1",
        "POST elsewhere/score HTTP/1.1",
        "POST @elsewhere/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
    ],
)
def test_no_other_host_is_asked(site: Site, line: str) -> None:
    heard = len(site.blue.heard)
    assert site.ask(line).startswith(b"HTTP/1.1 4")
    assert len(site.blue.heard) == heard


def test_an_absolute_address_is_still_answered_by_the_replica(site: Site) -> None:
    assert site.ask("POST http://169.254.169.254/latest HTTP/1.1").startswith(b"HTTP/1.1 200")
    assert site.blue.heard[-1].startswith(b"POST /latest HTTP/1.1")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_nothing_is_upgraded(site: Site, protocol: str) -> None:
    head = f"GET /score HTTP/1.1\nHost: x\nAuthorization: Bearer good\nConnection: Upgrade\nUpgrade: {protocol}\n"
    said = site.say(head + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n")
    assert b"101" not in said.split(b"\r\n")[0] and b" 500 " not in said.split(b"\r\n")[0]


def test_the_copy_of_a_request_is_answered_to_nobody(site: Site) -> None:
    for _ in range(20):
        assert site.ask().endswith(b"blue")
    assert site.shadow.heard and all(b"Bearer good" not in item for item in site.shadow.heard)
