"""Calls through a shared folder, both ends of them, without a server behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.conftest import wait_until

from muster.errors import NotFound, ServerUnavailable
from muster.host.http import Address
from muster.host.server import ServerConnection
from muster.paths import WorkspacePaths
from muster.server.context import Context
from muster.server.http.doors import AgentsDoor
from muster.server.http.remote import RemoteListener, remove_old, serve_spool
from muster.server.main import _server


def test_a_call_and_its_answer_go_through_files(tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        heard.append(head + await reader.readexactly(size))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"ok": true}')
        await writer.drain()
        writer.close()

    async def serve(stop: threading.Event, ready: threading.Event) -> None:
        server = await asyncio.start_unix_server(answer, tmp_path / "sock")
        relay = asyncio.create_task(serve_spool(spool, tmp_path / "sock"))
        ready.set()
        await asyncio.to_thread(stop.wait)
        relay.cancel()
        server.close()

    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(stop, ready)))
    thread.start()
    try:
        ready.wait(5)
        connection = ServerConnection(Address(f"file:{spool}", "secret"))
        for _ in range(2):
            assert connection.request("POST", "/api/v1/x", json_body={"a": 1}, timeout_s=10) == {"ok": True}
        connection.close()
    finally:
        stop.set()
        thread.join(10)
    assert len(heard) == 2
    assert b"Authorization: Bearer secret" in heard[0]
    assert heard[0].endswith(b'{"a": 1}')
    wait_until(lambda: not any(spool.iterdir()), 5, "an empty folder")


def test_nobody_at_the_other_end_is_a_server_that_is_away(tmp_path: Path):
    connection = ServerConnection(Address(f"file:{tmp_path}"))
    with pytest.raises(ServerUnavailable, match="no answer came"):
        connection.request("GET", "/x", timeout_s=0.1)
    connection.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ServerUnavailable, match="is not there"):
        ServerConnection(Address(f"file:{tmp_path}/elsewhere")).request("GET", "/x", timeout_s=0.1)


def test_requests_are_readable_by_their_owner_alone(tmp_path: Path):
    connection = ServerConnection(Address(f"file:{tmp_path}", "secret"))
    thread = threading.Thread(target=lambda: _try(connection))
    thread.start()
    request = wait_until(lambda: next(tmp_path.glob("*.request"), None), 5, "the request")
    assert request.stat().st_mode & 0o777 == 0o600
    thread.join(10)


def test_answers_that_nobody_fetched_are_removed(tmp_path: Path):
    for name in ("a.answer", "b.part", "c.request", "d.answer"):
        (tmp_path / name).touch()
    for name in ("a.answer", "b.part", "c.request"):
        os.utime(tmp_path / name, (0, 0))
    remove_old(tmp_path, time.time() - 60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.request", "d.answer"]


def _try(connection: ServerConnection) -> None:
    try:
        connection.request("GET", "/x", timeout_s=1.0)
    except ServerUnavailable:
        connection.close()


def test_a_call_that_a_server_leaves_behind_is_answered_by_the_next(tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    request, answered = spool / "one.request", spool / "one.answer"
    request.write_bytes(b"GET / HTTP/1.1\r\n\r\n")

    async def live(answers: bool) -> None:
        heard = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            heard.set()
            try:
                if not answers:
                    await asyncio.Event().wait()
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            finally:
                writer.close()

        async with asyncio.timeout(5), await asyncio.start_unix_server(answer, tmp_path / "sock"):
            relay = asyncio.create_task(serve_spool(spool, tmp_path / "sock"))
            await heard.wait()
            while answers and request.exists():
                await asyncio.sleep(0.01)
            relay.cancel()

    asyncio.run(live(answers=False))
    assert request.exists() and not answered.exists()
    asyncio.run(live(answers=True))
    assert answered.read_bytes().startswith(b"HTTP/1.1 200")


def test_a_call_that_finds_a_closed_socket_waits_for_the_next_server(tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    request = spool / "one.request"
    request.write_bytes(b"GET / HTTP/1.1\r\n\r\n")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async def live() -> None:
        relay = asyncio.create_task(serve_spool(spool, tmp_path / "sock"))
        # Nobody listens yet: as long as that takes, the call lies there.
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert request.exists()
        async with asyncio.timeout(10), await asyncio.start_unix_server(answer, tmp_path / "sock"):
            while request.exists():
                await asyncio.sleep(0.01)
        relay.cancel()

    asyncio.run(live())
    assert (spool / "one.answer").read_bytes().startswith(b"HTTP/1.1 200")


def test_calls_through_the_folder_reach_what_is_for_agents_alone(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"12"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"ok": true}'})

    paths = WorkspacePaths(tmp_path)
    paths.spool.mkdir()

    async def serve(stop: threading.Event, ready: threading.Event) -> None:
        context = cast(Context, SimpleNamespace(paths=paths))
        remote = RemoteListener(context, partial(_server, AgentsDoor(app)), tmp_path / "server.sock", None, None)
        remote._serve_agents_here()
        relay = asyncio.create_task(serve_spool(paths.spool, tmp_path / "agents.sock"))
        ready.set()
        await asyncio.to_thread(stop.wait)
        relay.cancel()
        await remote.close()

    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(stop, ready)))
    thread.start()
    try:
        ready.wait(10)
        assert not (tmp_path / "agents.sock").stat().st_mode & 0o077
        connection = ServerConnection(Address(f"file:{paths.spool}", "secret"))
        assert connection.request("POST", "/api/v1/agents/hello", json_body={}, timeout_s=30) == {"ok": True}
        for path in ("/api/v1/runs", "/api/v1/people", "/api/v1/health"):
            with pytest.raises(NotFound, match="serves the agents of nodes"):
                connection.request("GET", path, timeout_s=30)
        connection.close()
    finally:
        stop.set()
        thread.join(30)
    assert not (tmp_path / "agents.sock").exists()
