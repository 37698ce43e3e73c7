"""What a node makes of what it hears while it gathers a content."""

from __future__ import annotations

from muster.server.http.tls import made_for
from muster.storage.peers.asking import PeerTrouble
from muster.storage.peers.blocks import everything, from_text, set_of, to_text
from muster.storage.peers.ledger import ALONE_AFTER_S, Ledger
from muster.wire.node.peers import BlockHash, BlocksAnswer, PeerOffer

COUNT = 8
CERTIFICATE = made_for(["127.0.0.1"])[0].decode()
GONE = PeerTrouble("gone", unreachable=True)
BROKEN_OFF = PeerTrouble("broken off", passing=True)


def ledger() -> Ledger:
    return Ledger("c", COUNT, 4, "me", 0.0)


def offer(node: str, have: int = everything(COUNT)) -> PeerOffer:
    return PeerOffer(node, f"https://{node}:1", CERTIFICATE, "grant", to_text(have))


def answer(*offers: PeerOffer, source: int = 0, session: str = "s") -> BlocksAnswer:
    hashes = tuple(BlockHash(block, f"{block:064x}") for block in range(COUNT))
    return BlocksAnswer(session, to_text(source), hashes, COUNT, offers)


def test_it_reads_what_it_was_given_and_takes_the_rest_from_peers() -> None:
    mine = ledger()
    mine.take(answer(offer("b"), source=set_of([2])), [], 0.0)
    fetches = [fetch for _ in range(6) if (fetch := mine.choose(0.0)) is not None]
    assert [fetch.block for fetch in fetches if fetch.peer is None] == [2]
    assert {fetch.peer for fetch in fetches[1:]} == {"b"}
    assert len({fetch.block for fetch in fetches}) == len(fetches)


def test_a_hash_is_told_once_and_again_to_another_server() -> None:
    mine = ledger()
    mine.take(answer(source=1), [], 0.0)
    fetch = mine.choose(0.0)
    assert fetch is not None
    mine.arrived(fetch, "a" * 64, 1, 0.1, 0.1)
    report, told = mine.report(0.2)
    assert report.hashes == (BlockHash(0, "a" * 64),)
    mine.take(answer(), told, 0.3)
    assert mine.report(0.4)[0].hashes == ()
    mine.take(answer(session="another"), [], 0.5)
    assert mine.report(0.6)[0].hashes == report.hashes


def test_who_cannot_be_reached_is_avoided_for_a_while_and_said_once_nobody_is_left() -> None:
    mine = ledger()
    mine.take(answer(offer("b")), [], 0.0)
    fetch = mine.choose(0.0)
    assert fetch is not None
    mine.failed(fetch, GONE, 0.0)
    assert mine.choose(0.1) is None
    report, _ = mine.report(0.1)
    assert report.avoid == ("b",)
    assert report.unreachable
    assert mine.choose(100.0) is not None


def test_who_breaks_off_is_asked_once_more_before_it_is_avoided() -> None:
    mine = ledger()
    mine.take(answer(offer("b")), [], 0.0)
    for _ in range(2):
        fetch = mine.choose(0.0)
        assert fetch is not None
        assert fetch.peer == "b"
        mine.failed(fetch, BROKEN_OFF, 0.0)
    assert mine.choose(0.1) is None


def test_a_liar_is_reported_and_never_asked_again() -> None:
    mine = ledger()
    mine.take(answer(offer("b")), [], 0.0)
    fetch = mine.choose(0.0)
    assert fetch is not None
    mine.failed(fetch, PeerTrouble("wrong bytes", lied=True), 0.0)
    assert mine.choose(1e6) is None
    assert mine.report(1e6)[0].liars == ("b",)
    # The block is still wanted.
    assert from_text(mine.report(0.0)[0].have, COUNT) == 0
    mine.take(answer(offer("c")), [], 1e6)
    assert mine.choose(1e6) is not None


def test_it_goes_on_alone_when_the_server_or_everybody_else_is_silent() -> None:
    mine = ledger()
    mine.look_up(ALONE_AFTER_S - 1)
    assert not mine.alone
    mine.look_up(ALONE_AFTER_S + 1)
    assert mine.alone
    assert [fetch.block for _ in range(COUNT) if (fetch := mine.choose(0.0)) is not None] == [0, 1, 2, 3]


def test_what_an_earlier_try_brought_is_not_fetched_again() -> None:
    mine = Ledger.resumed("c", COUNT, 8, "me", 0.0, {0: "a" * 64, 99: "b" * 64})
    mine.go_alone()
    assert 0 not in {fetch.block for _ in range(COUNT) if (fetch := mine.choose(0.0)) is not None}
    assert mine.report(0.0)[0].hashes == (BlockHash(0, "a" * 64),)
