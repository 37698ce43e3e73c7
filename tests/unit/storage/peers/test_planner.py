"""Which block comes next, and from whom."""

from __future__ import annotations

from muster.storage.peers.blocks import everything, set_of
from muster.storage.peers.planner import (
    PEERS_AT_ONCE,
    PER_PEER,
    Fetch,
    Peer,
    Situation,
    claims_wanted,
    next_fetch,
    patience_s,
    slow_peers,
)

ALL = set_of(range(10))


def test_what_was_claimed_is_read_from_the_source_first() -> None:
    peers = [Peer("b", ALL)]
    assert next_fetch(Situation(ALL, set_of([4, 7]), 1, peers)) == Fetch(4)
    found = next_fetch(Situation(ALL, set_of([4, 7]), 0, peers))
    assert found is not None
    assert found.peer == "b"
    assert found.block not in (4, 7)


def test_the_rarest_block_comes_first() -> None:
    peers = [Peer("b", set_of([1, 2, 3])), Peer("c", set_of([1, 2])), Peer("d", set_of([1, 2]))]
    assert next_fetch(Situation(ALL, peers=peers)) == Fetch(3, "b")


def test_a_block_that_many_have_is_not_left_behind_for_ever() -> None:
    """Files are hashed in order: everything behind a missing block waits for it."""
    everywhere, rare = 1 << 5, sum(1 << block for block in range(80, 140))
    peers = [Peer("a", everywhere | rare), Peer("b", everywhere), Peer("c", everywhere)]
    near, far = everywhere | rare & everything(100), everywhere | rare
    for lacking, is_first in ((near, False), (far, True)):
        fetch = next_fetch(Situation(lacking, peers=peers))
        assert fetch is not None and (fetch.block == 5) == is_first


def test_a_peer_is_not_asked_for_too_much_at_once() -> None:
    busy = Peer("b", ALL, in_flight=PER_PEER)
    assert next_fetch(Situation(ALL, peers=[busy])) is None
    found = next_fetch(Situation(ALL, peers=[busy, Peer("c", set_of([5]))]))
    assert found == Fetch(5, "c")


def test_of_many_peers_each_is_asked_for_one_block_at_a_time() -> None:
    busy = [Peer(f"node{i}", ALL, in_flight=1) for i in range(PEERS_AT_ONCE)]
    assert next_fetch(Situation(ALL, peers=busy)) is None
    assert next_fetch(Situation(ALL, peers=busy[1:])) is not None


def test_of_two_that_have_it_the_idle_and_then_the_faster_one_is_asked() -> None:
    one = set_of([1])
    idle = [Peer("b", one, 1, 9.0), Peer("c", one, 0, 1.0)]
    assert next_fetch(Situation(ALL, peers=idle)) == Fetch(1, "c")
    fast = [Peer("b", one, 0, 9.0), Peer("c", one, 0, 1.0)]
    assert next_fetch(Situation(ALL, peers=fast)) == Fetch(1, "b")


def test_nodes_choose_differently() -> None:
    peers = [Peer("source", ALL)]
    chosen = {next_fetch(Situation(ALL, peers=peers, seed=f"node-{number}")) for number in range(20)}
    assert len(chosen) > 3


def test_nothing_is_fetched_that_nobody_has_or_that_is_here() -> None:
    assert next_fetch(Situation(ALL)) is None
    assert next_fetch(Situation(0, peers=[Peer("b", ALL)])) is None


def test_a_slow_peer_is_one_that_is_much_slower_than_the_others() -> None:
    assert slow_peers({"a": 100.0, "b": 90.0, "c": 9.0}) == {"c"}
    assert slow_peers({"a": 100.0, "b": 90.0, "c": 50.0}) == set()
    assert slow_peers({"a": 100.0, "b": 1.0}) == set()


def test_patience_follows_what_is_usual() -> None:
    assert patience_s(8 << 20, {}) == 128.0
    assert patience_s(1000, {}) == 5.0
    assert patience_s(10_000, {"a": 1000.0, "b": 1000.0}) == 80.0
    assert patience_s(1, {"a": 1000.0}) == 5.0


def test_claims_follow_the_source() -> None:
    assert claims_wanted(0.0, 8) == 1
    assert claims_wanted(1.5, 8) == 2
    assert claims_wanted(6.0, 8) == 4
    assert claims_wanted(1_000.0, 8) == 8
