"""Ports through tunnels: many at once, slow readers, much data, and what goes wrong."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from tests.conftest import wait_until
from tests.integration.tunnels.conftest import Running, echoed, memory_mb

from muster.host import frames

MB = 1 << 20


def test_a_forwarded_port_is_the_ranks_own(running: Running) -> None:
    with running.cli.start("forward", running.id, f"0:{running.port(1)}", "0:1", "--rank", "1") as forward:
        check_forwarding(forward)
    wait_until(lambda: not running.sessions(), what="the end of the sessions")


def check_forwarding(forward: subprocess.Popen[str]) -> None:
    assert forward.stderr is not None
    first, second = (re.search(r"127\.0\.0\.1:(\d+)", forward.stderr.readline()) for _ in range(2))
    assert first and second
    with closing(socket.create_connection(("127.0.0.1", int(first[1])), 30)) as line:
        given = os.urandom(5 * MB)
        sender = threading.Thread(target=lambda: (line.sendall(given), line.shutdown(socket.SHUT_WR)))
        sender.start()
        back = bytearray()
        while piece := line.recv(MB):
            back += piece
        sender.join()
    assert back == given
    # Nobody listens on the other one.
    with closing(socket.create_connection(("127.0.0.1", int(second[1])), 30)) as line:
        assert line.recv(1) == b""
    assert "nothing listens on port 1 of rank 1" in forward.stderr.readline()
    forward.send_signal(2)
    assert forward.wait(30) == 130


def test_fifty_tunnels_at_once_and_a_reader_that_sleeps(running: Running) -> None:
    port = running.port(0)
    asleep = running.open(port)
    asleep.sendall(frames.frame(frames.DATA, b"200"))
    with ThreadPoolExecutor(50) as workers:
        lines = list(workers.map(lambda _: running.open(port), range(50)))
        given = [os.urandom(100_000) for _ in lines]
        assert list(workers.map(echoed, lines, given)) == given
    # 200 MB wait for one who does not read: neither the server nor the keeper's process holds them.
    (session,) = wait_until(lambda: len(running.sessions()) == 1 and running.sessions(), what="one session left")
    assert memory_mb(session) < 20
    assert memory_mb(running.site.server().pid) < 250
    asleep.close()
    wait_until(lambda: not running.sessions(), what="the end of the last session")


def test_much_data_takes_no_memory(running: Running) -> None:
    """400 MB down; a gigabyte is what `bench/tunnel` sends."""
    server, port = running.site.server(), running.port(0)
    with closing(running.open(port)) as line:
        line.settimeout(60)
        line.sendall(frames.frame(frames.DATA, b"400"))
        before, got = memory_mb(server.pid), 0
        most = before
        while got < 400 * MB:
            got += len(line.recv(MB))
            if got % (20 * MB) < MB // 4:
                most = max(most, memory_mb(server.pid))
    assert most - before < 20


def test_garbage_ends_its_own_tunnel_alone(running: Running) -> None:
    port = running.port(0)
    good, bad = running.open(port), running.open(port)
    bad.sendall(b"\xff" * 100_000)
    said = bytearray()
    bad.settimeout(30)
    with closing(bad):
        while piece := _received(bad):
            said += piece
    assert b"is not a valid frame" in said
    assert echoed(good, b"still here") == b"still here"


def test_the_routes_refuse_what_they_do_not_know(running: Running) -> None:
    address = running.site.client.address
    path = address.url.removeprefix("unix:")

    def ask(head: str, token: str = address.token) -> bytes:
        with closing(socket.socket(socket.AF_UNIX)) as line:
            line.settimeout(30)
            line.connect(path)
            line.sendall(
                f"{head}\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode() + b"\x00\xffgarbage" * 100
            )
            return line.recv(65536)

    upgrade = "Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: muster-tunnel"
    assert b" 404 " in ask(f"POST /api/v1/tunnels/nothing HTTP/1.1\r\n{upgrade}")
    assert b" 403 " in ask(f"POST /api/v1/tunnels/nothing HTTP/1.1\r\n{upgrade}", "wrong")
    assert b" 404 " in ask(f"POST /api/v1/agents/local-0/tunnels/nothing HTTP/1.1\r\n{upgrade}")
    assert b" 400 " in ask("POST /api/v1/tunnels/nothing HTTP/1.1\r\nContent-Length: 0")
    other = upgrade.replace("muster-tunnel", "h2c")
    assert b" 422 " in ask(f"POST /api/v1/tunnels/nothing HTTP/1.1\r\n{other}")
    assert running.output("echo", "well") == "well\n"


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except ConnectionError:
        return b""
