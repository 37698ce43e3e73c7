"""Blocks of data that nodes take from each other: what they tell the server, and what it tells them.

Sets of blocks travel as hexadecimal numbers: bit N stands for block N.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import wire

SharedKind = Literal["input", "code", "checkpoint", "environment"]
"""What nodes take from each other: staged inputs, and what Muster itself brings to a gang."""


def place_name(kind: SharedKind, name: str) -> str:
    """What code (by its digest), a checkpoint (its number) or an environment (its key) is called between nodes."""
    return f"{kind}:{name}"


@wire
class PeerHello:
    """The body of `POST agents/NODE/peer`: the node is about to serve blocks to others."""

    address: str
    """Where others reach it."""


@wire
class PeerIdentity:
    """What a node serves blocks with; made anew for every process that does."""

    certificate: str
    """PEM text; whoever asks the node for a block is told to expect exactly this."""
    private_key: str = field(repr=False)
    grant_key: str = field(repr=False)
    """In hexadecimal: signs the grants that open blocks of this node, and no other."""


@wire
class BlockHash:
    """What a block must be."""

    block: int
    sha256: str


@wire
class BlocksReport:
    """How far one input is on a node; `BlocksRequest` is the same with whose it is."""

    content: str
    """What the source held when it was listed: paths, sizes, versions and the size of blocks."""
    count: int
    """Of blocks."""
    session: str = ""
    """Of the server that gave the last answer; empty at first."""
    have: str = "0"
    claimed: str = "0"
    """What it was given to read from the source and does not have yet."""
    wants: int = 0
    """How many blocks more it could read from the source now."""
    hashes: tuple[BlockHash, ...] = field(default=(), metadata=OMIT)
    """Of blocks that it read from the source."""
    hashes_seen: int = 0
    avoid: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Nodes that it cannot reach, that are too slow, or that it does not trust."""
    liars: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Nodes that served wrong bytes."""
    unreachable: bool = field(default=False, metadata=OMIT)
    """There are peers, and it reaches none of them."""


@wire
class BlocksRequest:
    """The body of `POST agents/NODE/blocks`."""

    run: str
    attempt: int
    input: str
    """Its name; that of code, a checkpoint or an environment where `kind` says so."""
    url: str
    """Where this node serves blocks; empty: it does not."""
    report: BlocksReport
    kind: SharedKind = field(default="input", metadata=OMIT)


@wire
class PeerOffer:
    """A node that has blocks."""

    node: str
    url: str
    certificate: str
    grant: str = field(repr=False)
    have: str = "0"


@wire
class BlocksAnswer:
    """What others have, and what to read from the source."""

    session: str
    """Another one than before: the server was started anew, and knows nothing of what it was told."""
    source: str = "0"
    """Blocks to read from the source, besides those claimed before."""
    hashes: tuple[BlockHash, ...] = ()
    """New since `hashes_seen`."""
    hashes_seen: int = 0
    peers: tuple[PeerOffer, ...] = ()
    again_s: float = 0.25
    """When to report again."""
    notices: tuple[str, ...] = field(default=(), metadata=OMIT)
    """For those who follow the run; each is told once."""
    unknown: bool = field(default=False, metadata=OMIT)
    """The server has no certificate of this node: it has to say hello to others again."""
