"""Who sends half a request, too much of a head, or takes no answer, is let go; the others are answered meanwhile."""

from __future__ import annotations

import asyncio
import importlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from tests.conftest import wait_until

from muster.scoring import listening

SOON_S = 0.5
LARGE = b"x" * (32 << 20)


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = LARGE if scope["path"] == "/large" else b"well"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(params=["httptools", "h11"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
    """A listener as replicas and front doors have it, with either parser."""
    monkeypatch.setattr(listening, "HEADER_S", SOON_S)
    monkeypatch.setattr(listening, "TAKE_S", SOON_S)
    if request.param == "h11":
        real: Callable[[str], Any] = importlib.import_module

        def without_httptools(name: str) -> Any:
            if name.endswith("httptools_impl"):
                raise ImportError(name)
            return real(name)

        monkeypatch.setattr(
            listening, "importlib", type("Fake", (), {"import_module": staticmethod(without_httptools)})
        )
    listener = listening.listener_on("127.0.0.1")
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", http=listening.bounded(), limit_concurrency=1000,
        port=listener.getsockname()[1]
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    yield server
    server.should_exit = server.force_exit = True
    thread.join()


@pytest.fixture
def port(server: uvicorn.Server) -> int:
    return server.config.port


def dial(port: int, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(said)
    return connection


def well(port: int) -> bool:
    with dial(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        return connection.recv(65536).startswith(b"HTTP/1.1 200")


def is_let_go(connection: socket.socket) -> bool:
    """Reads until the end, which comes."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_three_hundred_half_sent_heads_are_bounded_and_ended(port: int) -> None:
    with ExitStack() as held:
        half = [held.enter_context(dial(port, b"POST /score HTTP/1.1\r\nHost: x\r\nX-A: ")) for _ in range(300)]
        assert well(port)
        assert all(is_let_go(connection) for connection in half)
    assert well(port) and not listening._Bounds._unfinished


def test_a_second_request_that_stays_half_is_ended_too(port: int) -> None:
    with dial(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        assert is_let_go(connection)


def test_a_head_without_end_is_not_kept(port: int) -> None:
    with dial(port, b"GET / HTTP/1.1\r\n") as connection:
        line = b"X-" + b"a" * 1000 + b": b\r\n"

        def ended() -> bool:
            try:
                connection.sendall(line)
            except OSError:
                return True
            return False

        wait_until(ended, 60, "the end of the connection")
    assert well(port)


def test_who_takes_nothing_of_an_answer_is_let_go(server: uvicorn.Server, port: int) -> None:
    with dial(port, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: not server.server_state.connections, 60, "the end of the connection")
        assert well(port)
