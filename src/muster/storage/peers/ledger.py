"""What a node knows while it gathers a content: what it has, what is under way, who else has what. No sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.storage.peers.asking import Known, PeerTrouble, known
from muster.storage.peers.blocks import everything, from_text, set_of, to_text
from muster.storage.peers.planner import (
    PEERS_AT_ONCE,
    Fetch,
    Peer,
    Situation,
    claims_wanted,
    next_fetch,
    patience_s,
    slow_peers,
)
from muster.wire.node.peers import BlockHash, BlocksAnswer, BlocksReport

ALONE_AFTER_S = 20.0
"""After this long without an answer from the server, or without an arriving block, a node continues alone."""
SLOW_S = 2.0
"""A peer that is slower than others is not avoided as long as a block takes no longer than this."""
_RATE_OVER_S = 2.0


@dataclass
class Ledger:
    """Changed under its owner's lock."""

    content: str
    count: int
    most_requests: int
    """Requests to the source at a time."""
    seed: str
    now: float
    have: int = 0
    in_flight: int = 0
    claimed: int = 0
    alone: bool = False
    """Everything that is missing is read from the source."""
    hashes: dict[int, str] = field(default_factory=dict)
    """The expected hash of each block, where known."""
    session: str = ""
    peers: dict[str, Known] = field(default_factory=dict)
    liars: set[str] = field(default_factory=set)
    _own_hashes: dict[int, str] = field(default_factory=dict)
    """Of blocks that came from the source."""
    _hashed: int = 0
    _told: set[int] = field(default_factory=set)
    _seen: int = 0
    _source_in_flight: int = 0
    _source_done: deque[float] = field(default_factory=lambda: deque(maxlen=1_000))
    _answered_at: float = 0.0
    _moved_at: float = 0.0
    _from_peers: int = 0

    def __post_init__(self) -> None:
        self._answered_at = self._moved_at = self.now

    @classmethod
    def resumed(
        cls, content: str, count: int, most_requests: int, seed: str, now: float, done: Mapping[int, str]
    ) -> Ledger:
        """A ledger that has some blocks already, from an earlier try."""
        done = {block: sha256 for block, sha256 in done.items() if 0 <= block < count}
        ledger = cls(content, count, most_requests, seed, now, have=set_of(done))
        ledger.hashes, ledger._own_hashes, ledger._hashed = dict(done), dict(done), ledger.have
        return ledger

    @property
    def lacking(self) -> int:
        return everything(self.count) & ~self.have

    @property
    def is_done(self) -> bool:
        return not self.lacking

    # Reports to the server, and its answers

    def report(self, now: float) -> tuple[BlocksReport, list[int]]:
        """A report for the server, and the blocks whose hashes are in it."""
        fresh = [block for block in self._own_hashes if block not in self._told]
        under_way = (self.claimed & self.lacking).bit_count()
        wants = 0 if self.alone else max(0, claims_wanted(self.source_rate(now), self.most_requests) - under_way)
        avoided = [peer.offer.node for peer in self.peers.values() if self._is_avoided(peer, now)]
        report = BlocksReport(
            self.content,
            self.count,
            self.session,
            to_text(self.have),
            to_text(self.claimed & self.lacking),
            wants,
            tuple(BlockHash(block, self._own_hashes[block]) for block in fresh),
            self._seen,
            tuple(sorted({*avoided} - self.liars)),
            tuple(sorted(self.liars)),
            self.reaches_nobody,
        )
        return report, fresh

    def take(self, answer: BlocksAnswer, told: list[int], now: float) -> None:
        """Take the server's answer to a report; raises ValueError if it makes no sense."""
        self._answered_at = now
        if answer.session != self.session:
            self._told.clear()
        else:
            self._told.update(told)
        self.session, self._seen = answer.session, answer.hashes_seen
        for item in answer.hashes:
            self._learn(item.block, item.sha256)
        self.claimed |= from_text(answer.source, self.count) & self.lacking
        offered = {offer.node: offer for offer in answer.peers}
        for node, offer in offered.items():
            if node in self.peers:
                self.peers[node].renewed(offer, self.count)
            elif node not in self.liars:
                self.peers[node] = known(offer, self.count)
        for node, peer in self.peers.items():
            # One that is avoided is not offered, and may be asked again later.
            if node not in offered and not self._is_avoided(peer, now):
                peer.have = 0

    def look_up(self, now: float) -> None:
        """Continue alone if the server does not answer or no block arrives."""
        is_waiting = not self.in_flight and bool(self.lacking)
        if now - self._answered_at > ALONE_AFTER_S or (is_waiting and now - self._moved_at > ALONE_AFTER_S):
            self.go_alone()

    def go_alone(self) -> None:
        self.alone = True
        self.claimed = self.lacking

    # Fetching

    def choose(self, now: float) -> Fetch | None:
        """The next block, marked as under way; None: there is nothing to do at the moment."""
        busy = sum(peer.in_flight for peer in self.peers.values())
        usable = [
            Peer(node, peer.have & self._hashed, peer.in_flight, peer.rate)
            for node, peer in self.peers.items()
            if busy < PEERS_AT_ONCE and node not in self.liars and not self._is_avoided(peer, now)
        ]
        free = self.most_requests - self._source_in_flight
        fetch = next_fetch(Situation(self.lacking & ~self.in_flight, self.claimed, free, usable, self.seed))
        if fetch is None:
            return None
        self.in_flight |= 1 << fetch.block
        if fetch.peer is None:
            self._source_in_flight += 1
        else:
            self.peers[fetch.peer].in_flight += 1
        return fetch

    def patience_s(self, size: int) -> float:
        return patience_s(size, self._rates())

    def arrived(self, fetch: Fetch, sha256: str, size: int, seconds: float, now: float) -> None:
        """Record a block that has arrived and has the expected hash."""
        self._landed(fetch)
        self.have |= 1 << fetch.block
        self._moved_at = now
        if fetch.peer is None:
            self._own_hashes[fetch.block] = sha256
            self._learn(fetch.block, sha256)
            self._source_done.append(now)
            return
        peer = self.peers[fetch.peer]
        peer.measured(size, seconds)
        self._from_peers += 1
        if seconds > SLOW_S and fetch.peer in slow_peers(self._rates()):
            peer.avoid(now)

    def failed(self, fetch: Fetch, trouble: PeerTrouble, now: float) -> None:
        """Record that a peer did not deliver a block; one that sent something else instead is not asked again."""
        self._landed(fetch)
        if fetch.peer is None:
            return
        self.peers[fetch.peer].failed(trouble, now)
        if trouble.lied:
            self.liars.add(fetch.peer)

    @property
    def reaches_nobody(self) -> bool:
        """There are peers, all were tried, and none was ever reached."""
        peers = self.peers.values()
        return not self._from_peers and bool(peers) and all(peer.unreachable for peer in peers)

    @property
    def nodes(self) -> int:
        """How many nodes blocks have come from."""
        return sum(1 for peer in self.peers.values() if peer.got)

    def source_rate(self, now: float) -> float:
        """Blocks per second that came from the source lately."""
        recent = [at for at in self._source_done if now - at < _RATE_OVER_S]
        return len(recent) / max(0.2, now - recent[0]) if len(recent) > 1 else 0.0

    def _landed(self, fetch: Fetch) -> None:
        self.in_flight &= ~(1 << fetch.block)
        if fetch.peer is None:
            self._source_in_flight -= 1
        else:
            self.peers[fetch.peer].in_flight -= 1

    def _is_avoided(self, peer: Known, now: float) -> bool:
        return now < peer.avoided_until

    def _rates(self) -> dict[str, float]:
        return {node: peer.rate for node, peer in self.peers.items() if peer.rate is not None}

    def _learn(self, block: int, sha256: str) -> None:
        self.hashes[block] = sha256
        self._hashed |= 1 << block
