"""What the server tells nodes that share data: certificates, grants, notices."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster import errors
from muster.server.context import Context
from muster.server.data import peers
from muster.server.data.state import DataState
from muster.storage.grants import check, verify
from muster.storage.peers.blocks import shelf_name
from muster.wire.node.peers import BlockHash, BlocksAnswer, BlocksReport, BlocksRequest, PeerHello

PLACE = "http:https://host/data"


class Server:
    """As much of a server as is needed; `silent` holds nodes that have not been heard of for long."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        hub = SimpleNamespace(silent_s=lambda node: 1e6 if node in self.silent else 0.0)
        self.context = cast(Context, SimpleNamespace(data=DataState(), hub=hub))

    def tell(self, node: str, run: str = "r", **more: Any) -> BlocksAnswer:
        report = BlocksReport("c", 4, **more)
        return peers.report(self.context, node, PLACE, BlocksRequest(run, 1, "x", "https://127.0.0.1:1", report))

    def have_all(self, node: str) -> None:
        self.tell(node, have="f", hashes=tuple(BlockHash(block, f"{block:064}") for block in range(4)))


@pytest.fixture
def server() -> Server:
    made = Server()
    for node in ("a", "b", "c"):
        peers.introduce(made.context, node, PeerHello("127.0.0.1"))
    return made


def test_a_grant_opens_one_content_of_one_node(server: Server) -> None:
    server.have_all("a")
    (offer,) = server.tell("b").peers
    keys = server.context.data.peers
    assert (offer.node, offer.have, offer.certificate) == ("a", "f", keys["a"].certificate)
    for clock_off_s in (-3_000, 3_000):
        grant = verify(offer.grant, keys["a"].grant_key, time.time() + clock_off_s)
    shelf = shelf_name(PLACE, "c")
    check(grant, store="a", path=shelf, scope="read")
    assert grant.subject == "run/r/1"
    with pytest.raises(errors.AccessDenied):
        verify(offer.grant, keys["b"].grant_key, time.time())
    with pytest.raises(errors.AccessDenied):
        check(grant, store="a", path=shelf_name("elsewhere", "c"), scope="read")


def test_what_lies_elsewhere_is_another_content(server: Server) -> None:
    server.have_all("a")
    body = BlocksRequest("r", 1, "x", "https://127.0.0.1:1", BlocksReport("c", 4, wants=4))
    answer = peers.report(server.context, "b", "http:https://other/data", body)
    assert answer.peers == ()
    assert answer.source == "f"


def test_a_node_that_is_silent_or_serves_anew_has_nothing(server: Server) -> None:
    server.have_all("a")
    server.silent.add("a")
    assert server.tell("b", wants=4).source == "f"
    server.have_all("c")
    peers.introduce(server.context, "c", PeerHello("127.0.0.1"))
    assert server.tell("b").peers == ()


def test_a_node_that_the_server_does_not_know_has_to_say_hello(server: Server) -> None:
    assert server.tell("stranger").unknown
    assert not server.tell("a").unknown


def test_every_notice_is_given_once(server: Server) -> None:
    server.have_all("a")
    (notice,) = server.tell("b", liars=("a",)).notices
    assert notice.startswith("a served wrong bytes of input x")
    assert server.tell("b", liars=("a",)).notices == server.tell("c", liars=("a",)).notices == ()
    (notice,) = server.tell("b", unreachable=True).notices
    assert "cannot reach each other" in notice
    assert server.tell("c", unreachable=True).notices == ()
    assert server.tell("c", run="another", unreachable=True).notices


def test_a_report_that_cannot_be_is_refused(server: Server) -> None:
    server.have_all("a")
    with pytest.raises(errors.JobError, match="the report of b cannot be"):
        server.tell("b", have="ffff")


def test_a_node_without_an_address_that_can_be_is_refused(server: Server) -> None:
    for address in ("à", "a b", "x" * 300):
        with pytest.raises(errors.JobError, match="no address of a node"):
            peers.introduce(server.context, "a", PeerHello(address))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:99999", "https://10.0.0.1:1", "https://x"])
def test_a_node_serves_by_tls_and_on_itself_alone(server: Server, url: str) -> None:
    body = BlocksRequest("r", 1, "x", url, BlocksReport("c", 4))
    with pytest.raises(errors.JobError, match="a cannot serve blocks at"):
        peers.report(server.context, "a", PLACE, body)
