"""Which block a node fetches next, and from whom. Pure.

Blocks that the server assigned to this node come first, from the source: everybody waits for the source. Of the peers'
blocks, the rarest comes first, so that each node soon has something that others want; but none is left far behind, so
that hashing a file can keep up with its arrival.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from muster.storage.peers.blocks import members

PEERS_AT_ONCE = 6
"""Requests to peers at a time: enough to fill a link. More of them only cost processor time."""
PER_PEER = 2
"""Requests to one peer at a time, where there are too few peers for one request to each."""
_WINDOW = 64
"""How many missing blocks are considered, from the first on."""
_BEHIND = 96
"""If the first of those is this far behind the last, it comes next: common blocks would wait until the end."""
_SLOW_FACTOR = 5.0
"""A peer this many times slower than the median is avoided."""
_LOOK_AHEAD_S = 0.5
_LEAST_PATIENCE_S = 5.0
_PATIENCE_FACTOR = 8.0
_LEAST_RATE = 64 << 10
"""Bytes per second."""


@dataclass(frozen=True)
class Peer:
    """A node that may be asked."""

    node: str
    have: int
    in_flight: int = 0
    rate: float | None = None
    """Bytes per second of one request; None: not known yet."""


@dataclass(frozen=True)
class Situation:
    """What a node knows when it chooses."""

    lacking: int
    """Blocks that it does not have and is not fetching."""
    claimed: int = 0
    """Of those, the ones it was assigned to read from the source."""
    source_free: int = 1
    """How many more requests the source takes."""
    peers: Sequence[Peer] = ()
    seed: str = ""
    """Differs between nodes, so that they choose differently."""


@dataclass(frozen=True)
class Fetch:
    """A block, and the node that it comes from; None: the source."""

    block: int
    peer: str | None = None


def next_fetch(situation: Situation) -> Fetch | None:
    """What to fetch next; None: there is nothing to do at the moment."""
    mine = situation.claimed & situation.lacking
    if mine and situation.source_free > 0:
        return Fetch(members(mine, 1)[0])
    at_a_time = PER_PEER if len(situation.peers) < PEERS_AT_ONCE else 1
    ready = [peer for peer in situation.peers if peer.in_flight < at_a_time]
    within_reach = 0
    for peer in ready:
        within_reach |= peer.have
    # Blocks assigned to this node may have come to a peer by another way: they are still read from the source.
    window = members(within_reach & situation.lacking & ~situation.claimed, _WINDOW)
    if not window:
        return None
    if window[-1] - window[0] > _BEHIND:
        block = window[0]
    else:
        holders = {block: sum(peer.have >> block & 1 for peer in situation.peers) for block in window}
        block = min(window, key=lambda block: (holders[block], _spread(situation.seed, block)))
    candidates = [peer for peer in ready if peer.have >> block & 1]
    chosen = min(candidates, key=lambda peer: (peer.in_flight, -(peer.rate or 0.0), _spread(peer.node, block)))
    return Fetch(block, chosen.node)


def slow_peers(rates: Mapping[str, float]) -> set[str]:
    """Those that are much slower than the others."""
    if len(rates) < 3:
        return set()
    least = median(rates.values()) / _SLOW_FACTOR
    return {node for node, rate in rates.items() if rate < least}


def patience_s(size: int, rates: Mapping[str, float]) -> float:
    """How long a peer may take over a block before it is given up."""
    usual = median(rates.values()) if rates else 0.0
    # With nothing to compare it with, it may be as slow as the slowest link that is worth waiting for.
    expected_s = _PATIENCE_FACTOR * size / usual if usual > 0 else size / _LEAST_RATE
    return max(_LEAST_PATIENCE_S, expected_s)


def claims_wanted(blocks_per_s: float, most: int) -> int:
    """How many blocks to claim from the source: enough to keep busy until the next answer, and no more.

    A node that claims more than it can read keeps blocks from the others.
    """
    return min(most, round(blocks_per_s * _LOOK_AHEAD_S) + 1)


def _spread(seed: str, block: int) -> int:
    return zlib.crc32(f"{seed}/{block}".encode())
