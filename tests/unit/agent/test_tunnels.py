"""The agent's ends of tunnels: dialled once, refused with a sentence, passed on where there is TLS."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until

from muster.agent.threads import Loop
from muster.agent.tunnels import Relay, Tunnels, session_command
from muster.errors import ServerUnavailable
from muster.host.http import Address
from muster.server.http.tls import self_signed
from muster.wire.node.tunnels import TunnelOrder
from muster.wire.tunnels import Terminal, TunnelTarget

ORDER = TunnelOrder("one", "bert-1", 1, TunnelTarget("shell", 2, ("ls",), Terminal(24, 80, "vt100")))


class FakeLink:
    """The boundary to a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refused: list[tuple[str, str]] = []
        self.dialled: list[str] = []

    def reached_at(self) -> Address:
        return Address(self.url)

    def dial_tunnel(self, tunnel: str) -> socket.socket:
        self.dialled.append(tunnel)
        raise ServerUnavailable("it went away")

    def refuse_tunnel(self, tunnel: str, message: str, hint: str = "") -> None:
        self.refused.append((tunnel, message))


def opened(url: str, refusal: str = "") -> FakeLink:
    link: Any = FakeLink(url)
    tunnels = Tunnels(link, Loop(), lambda *_: False, "")
    tunnels.open(ORDER, refusal)
    tunnels.open(ORDER, refusal)
    tunnels._workers.close(2.0)
    found: FakeLink = link
    return found


def test_a_shared_folder_carries_no_tunnel_and_says_so() -> None:
    link = opened("file:/shared/spool")
    ((tunnel, said),) = link.refused
    assert tunnel == "one" and "shared folder, which cannot carry tunnels" in said
    assert not link.dialled


def test_an_order_is_followed_once_and_a_failure_is_told() -> None:
    link = opened("unix:/x")
    assert link.dialled == ["one"]
    assert [said for _, said in link.refused] == ["the node could not open its end of the tunnel: it went away"]


def test_an_attempt_that_does_not_run_is_refused_without_a_call() -> None:
    link = opened("unix:/x", "attempt 1 does not run")
    assert link.refused == [("one", "attempt 1 does not run")] and not link.dialled


def test_the_keeper_is_told_all_that_it_needs() -> None:
    command = session_command(ORDER, ["10.0.0.1", ""])
    assert command["session"] == "shell" and command["rank"] == 2 and command["command"] == ["ls"]
    assert command["terminal"] == [24, 80, "vt100"] and command["addresses"] == ["10.0.0.1"]


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[tuple[ssl.SSLSocket, socket.socket, Relay]]:
    """The server's end, the session's end, and the relay between them."""
    certificate, key = self_signed(tmp_path, "localhost")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False
    outside, inside = socket.socketpair()
    made: list[ssl.SSLSocket] = []
    shaking = threading.Thread(target=lambda: made.append(serving.wrap_socket(outside, server_side=True)))
    shaking.start()
    network = trusting.wrap_socket(inside)
    shaking.join()
    far, (keeper, near) = made[0], socket.socketpair()
    relay = Relay()
    relay.add(network, keeper)
    yield far, near, relay
    relay.close()
    far.close()
    near.close()


def test_bytes_pass_through_tls_both_ways_until_either_side_ends(
    joined: tuple[ssl.SSLSocket, socket.socket, Relay],
) -> None:
    far, near, relay = joined
    given = os.urandom(3 << 20)
    sending = threading.Thread(target=far.sendall, args=(given,))
    sending.start()
    assert _read(near, len(given)) == given
    sending.join()
    sending = threading.Thread(target=near.sendall, args=(given,))
    sending.start()
    assert _read(far, len(given)) == given
    sending.join()
    near.close()
    assert far.recv(10) == b""
    wait_until(lambda: not relay._joined, 5.0)


def test_a_session_that_has_said_everything_leaves_after_the_other_end(
    joined: tuple[ssl.SSLSocket, socket.socket, Relay],
) -> None:
    far, near, relay = joined
    near.sendall(b"all")
    near.shutdown(socket.SHUT_WR)
    assert _read(far, 3) == b"all"
    far.settimeout(0.2)
    with pytest.raises(TimeoutError):
        far.recv(1)
    far.close()
    assert near.recv(1) == b""
    wait_until(lambda: not relay._joined, 5.0)


def test_what_a_session_said_last_arrives_although_it_is_gone_and_is_still_spoken_to(
    joined: tuple[ssl.SSLSocket, socket.socket, Relay],
) -> None:
    far, near, relay = joined
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    near.setblocking(False)
    given, sent = os.urandom(8 << 20), 0
    with suppress(BlockingIOError):
        # As much as there is room for, while nobody reads it.
        while sent < len(given):
            sent += near.send(given[sent : sent + 10_000])
    near.close()
    for _ in range(3):
        far.sendall(b"unheard")
    given = given[:sent]
    assert _read(far, len(given)) == given
    wait_until(lambda: not relay._joined, 5.0)


def _read(end: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = end.recv(size - len(got))
        assert piece, f"it ends after {len(got)} of {size} bytes"
        got += piece
    return bytes(got)
