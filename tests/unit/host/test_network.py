"""From where a port answers: the kernel's filter on real sockets, on loopback addresses."""

from __future__ import annotations

import socket
from ipaddress import ip_network

import pytest

from muster.host import network
from muster.host.network import answer_everybody, answer_only, network_of


def answers(listener: socket.socket, source: str) -> bool:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(0.3)
        client.bind((source, 0))
        try:
            client.connect(("::1" if ":" in source else "127.0.0.1", listener.getsockname()[1]))
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("everywhere", [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)])
def test_a_listener_answers_the_networks_it_is_given_and_no_other(
    everywhere: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_LOOPBACK", ())
    with socket.create_server((everywhere[0], 0), family=everywhere[1], dualstack_ipv6=everywhere[0] == "::") as it:
        answer_only(it, [ip_network("127.5.0.0/16"), ip_network("127.0.0.7/32")])
        assert answers(it, "127.5.3.1") and answers(it, "127.0.0.7")
        assert not answers(it, "127.0.0.1") and not answers(it, "127.6.0.1")
        if everywhere[0] == "::":
            assert not answers(it, "::1")
            answer_only(it, [ip_network("127.9.0.0/16"), ip_network("::/64")])
            assert answers(it, "::1") and not answers(it, "127.5.3.1")
        answer_everybody(it)
        assert answers(it, "127.0.0.1")
        answer_everybody(it)


def test_this_machine_is_always_answered() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        answer_only(listener, [ip_network("10.99.0.0/16")])
        assert answers(listener, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "found"), [("10.1.0.0/16", True), ("fd00::/8", True), ("default", False), ("", False), (None, False)]
)
def test_a_subnet_is_known_by_its_addresses(text: str | None, found: bool) -> None:
    assert (network_of(text) is not None) is found
