"""Ports that descendants of the agent open are closed to strangers; what its owner locked stays open."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from muster.agent.run import fence
from muster.agent.run.fence import Fence, start_fence
from muster.host import network

LISTEN = """
import socket, sys
both = ":" in sys.argv[1]
family = socket.AF_INET6 if both else socket.AF_INET
listener = socket.create_server((sys.argv[1], 0), family=family, dualstack_ipv6=both)
if sys.argv[2] == "locked":
    listener.setsockopt(socket.SOL_SOCKET, 44, 1)
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def loopback_as_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of loopback stand for machines."""
    monkeypatch.setattr(network, "_LOOPBACK", ())
    monkeypatch.setattr(fence, "_own_addresses", lambda: iter(()))


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Iterator[int]:
    command = [sys.executable, "-c", LISTEN, *request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate("")


def answers(port: int, source: str) -> bool:
    with socket.socket() as client:
        client.settimeout(0.3)
        client.bind((source, 0))
        try:
            client.connect(("127.0.0.2", port))
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("listening", [("0.0.0.0", ""), ("127.0.0.2", ""), ("::", "")], indirect=True)
def test_a_childs_port_answers_the_subnet_alone(listening: int) -> None:
    assert answers(listening, "127.9.0.1")
    Fence(ip_network("127.5.0.0/16")).look()
    assert answers(listening, "127.5.0.1") and not answers(listening, "127.9.0.1")


@pytest.mark.parametrize("listening", [("0.0.0.0", "locked")], indirect=True)
def test_a_port_that_its_owner_locked_stays_open(listening: int) -> None:
    Fence(ip_network("127.5.0.0/16")).look()
    assert answers(listening, "127.9.0.1")


def test_a_socket_that_is_no_descendants_is_left_alone() -> None:
    with socket.create_server(("0.0.0.0", 0)) as mine:
        Fence(ip_network("127.5.0.0/16")).look()
        assert answers(mine.getsockname()[1], "127.9.0.1")


@pytest.mark.parametrize("subnet", [None, "", "default"])
def test_without_a_subnet_of_addresses_nothing_is_closed(subnet: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fence, "start", lambda self: pytest.fail("it was started"))
    start_fence(subnet)
