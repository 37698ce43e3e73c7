"""Who has which blocks, and who reads which from the source: kept by the server in memory. No clock, no sockets.

Every node reports what it has and hears what others have. A block is given to one node to read from the source; another
gets it only when that one is gone, takes far too long, or cannot be reached by it. What is lost when the server
restarts comes back with the next reports.
"""

from __future__ import annotations

import secrets
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from muster.storage.peers.blocks import everything, from_text, members, to_text
from muster.wire.node.peers import BlockHash, BlocksAnswer, BlocksReport

MOST_BLOCKS = 1 << 20
_MOST_SHELVES = 1_000
_MOST_PEERS = 16
"""How many a node is offered: more would not make it faster."""
_LOST_S = 10.0
_CLAIM_S = 60.0
"""How long a claim holds until it is known how long they take."""
_LEAST_CLAIM_S = 15.0
_CLAIM_FACTOR = 6.0
_CLAIMS_AT_ONCE = 64
_AGAIN_S = 0.25
_REPORTS_PER_S = 200.0
_DONE_AGAIN_S = 5.0


@dataclass
class Member:
    """A node that has blocks, or is getting them."""

    node: str
    url: str = ""
    have: int = 0
    claims: dict[int, float] = field(default_factory=dict)
    """When each was made."""
    heard_at: float = 0.0

    def is_alive(self, now: float, whole: int) -> bool:
        """Whether it is still there; one that has everything need not report."""
        return self.have == whole or now - self.heard_at < _LOST_S


@dataclass
class Shelf:
    """One content, and which nodes have which blocks of it."""

    count: int
    members: dict[str, Member] = field(default_factory=dict)
    hashes: dict[int, BlockHash] = field(default_factory=dict)
    """By block; the first node's report counts, unless that node serves wrong bytes."""
    told: list[BlockHash] = field(default_factory=list)
    """The same in the order of their arrival, with corrections."""
    told_by: dict[int, str] = field(default_factory=dict)
    hashed: int = 0
    """The blocks whose hash is known: others cannot be taken from a peer."""
    liars: set[str] = field(default_factory=set)
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    """How long claims took."""

    @property
    def whole(self) -> int:
        return everything(self.count)

    @property
    def claim_holds_s(self) -> float:
        if not self.durations:
            return _CLAIM_S
        return max(_LEAST_CLAIM_S, _CLAIM_FACTOR * median(self.durations))


@dataclass(frozen=True)
class Heard:
    """The result of a valid report."""

    answer: BlocksAnswer
    """Without addresses and grants of peers."""
    peers: tuple[Member, ...]
    new_liars: tuple[str, ...] = ()


class Board:
    """All contents that nodes share."""

    def __init__(self) -> None:
        self.session = secrets.token_hex(8)
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()

    def report(self, name: str, node: str, url: str, report: BlocksReport, now: float) -> Heard:
        """Take a node's report, and answer it; raises ValueError if it makes no sense."""
        shelf = self._shelf(name, report.count)
        is_new_server = report.session != self.session
        me = shelf.members.setdefault(node, Member(node))
        me.url, me.heard_at = url, now
        _take_state(shelf, me, report, now)
        # Names come from nodes and are shown, so only those of members count.
        new_liars = tuple(sorted((set(report.liars) & shelf.members.keys()) - shelf.liars - {node}))
        shelf.liars.update(new_liars)
        _take_hashes(shelf, node, report)
        avoid = {*report.avoid, *report.liars}
        source = assign(shelf, me, avoid, min(report.wants, _CLAIMS_AT_ONCE), now)
        for block in source:
            me.claims[block] = now
        seen = 0 if is_new_server else max(0, report.hashes_seen)
        others = tuple(peers_for(shelf, me, avoid, now))
        answer = BlocksAnswer(
            self.session,
            to_text(sum(1 << block for block in source)),
            tuple(shelf.told[seen:]),
            len(shelf.told),
            again_s=_DONE_AGAIN_S if me.have == shelf.whole else again_s(len(shelf.members)),
        )
        return Heard(answer, others, new_liars)

    def members_of(self, name: str) -> list[str]:
        """The nodes that have something of a content."""
        shelf = self._shelves.get(name)
        return list(shelf.members) if shelf else []

    def blocks_of(self, name: str) -> list[tuple[str, int]]:
        """The blocks of a content that each node can serve to others."""
        shelf = self._shelves.get(name)
        if shelf is None:
            return []
        return [(member.node, member.have) for member in shelf.members.values() if member.url]

    def forget_node(self, node: str) -> None:
        """Drop a node whose process was replaced: it no longer serves what it had."""
        for shelf in self._shelves.values():
            shelf.members.pop(node, None)

    def _shelf(self, name: str, count: int) -> Shelf:
        if not 0 < count <= MOST_BLOCKS:
            raise ValueError(f"{count} blocks are out of range: at most {MOST_BLOCKS}")
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = Shelf(count)
        if shelf.count != count:
            raise ValueError(f"this content has {shelf.count} blocks, not {count}")
        self._shelves.move_to_end(name)
        while len(self._shelves) > _MOST_SHELVES:
            self._shelves.popitem(last=False)
        return shelf


def assign(shelf: Shelf, me: Member, avoid: Iterable[str], wanted: int, now: float) -> list[int]:
    """Which blocks a node is to read from the source: those that nobody has or reads.

    If none are left, those that only nodes that it cannot ask have or read: by then, most of their blocks have come to
    others, too.
    """
    mine = me.have
    for block in me.claims:
        mine |= 1 << block
    others = [member for member in shelf.members.values() if member is not me and member.is_alive(now, shelf.whole)]
    passed_over = {*avoid, *shelf.liars}
    everybody, asked = mine, mine
    for member in others:
        taken = _taken(shelf, member, now)
        everybody |= taken
        if member.node not in passed_over:
            asked |= taken
    first = members(shelf.whole & ~everybody, max(0, wanted))
    return first or members(shelf.whole & ~asked, max(0, wanted))


def _taken(shelf: Shelf, member: Member, now: float) -> int:
    """The blocks that others need not read from the source because a node has or reads them."""
    if not member.url:
        return 0
    taken, holds_s = member.have & shelf.hashed, shelf.claim_holds_s
    for block, since in member.claims.items():
        if now - since < holds_s:
            taken |= 1 << block
    return taken


def peers_for(shelf: Shelf, me: Member, avoid: Iterable[str], now: float) -> list[Member]:
    """The peers that a node may ask: if there are many, a different choice for each node."""
    passed_over = {me.node, *avoid, *shelf.liars}
    found = [
        member
        for member in shelf.members.values()
        if member.node not in passed_over and member.url and member.have and member.is_alive(now, shelf.whole)
    ]
    if len(found) <= _MOST_PEERS:
        return found
    return sorted(found, key=lambda member: zlib.crc32(f"{me.node}/{member.node}".encode()))[:_MOST_PEERS]


def again_s(nodes: int) -> float:
    """The pause before a node's next report: short, but longer with many nodes."""
    return max(_AGAIN_S, nodes / _REPORTS_PER_S)


def _take_state(shelf: Shelf, me: Member, report: BlocksReport, now: float) -> None:
    have, claimed = from_text(report.have, shelf.count), from_text(report.claimed, shelf.count)
    for block, since in me.claims.items():
        if have >> block & 1:
            shelf.durations.append(now - since)
    me.have = have
    # If it no longer names a claim, it has the block, or our answer was lost.
    me.claims = {block: me.claims.get(block, now) for block in members(claimed & ~have)}


def _take_hashes(shelf: Shelf, node: str, report: BlocksReport) -> None:
    if node in shelf.liars:
        return
    for item in report.hashes:
        if not 0 <= item.block < shelf.count or len(item.sha256) != 64:
            raise ValueError(f"block {item.block} of {shelf.count} with the hash {item.sha256[:80]!r}")
        known = shelf.hashes.get(item.block)
        if known is None or (known != item and shelf.told_by[item.block] in shelf.liars):
            shelf.hashes[item.block] = item
            shelf.told.append(item)
            shelf.told_by[item.block] = node
            shelf.hashed |= 1 << item.block
