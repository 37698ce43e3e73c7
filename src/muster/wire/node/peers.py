"""Blocks of data that nodes fetch from each other: their reports to the server, and its answers.

Sets of blocks travel as hexadecimal numbers: bit N stands for block N.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import wire

SharedKind = Literal["input", "code", "checkpoint", "environment"]
"""What nodes fetch from each other: staged inputs, and a gang's code, checkpoints and environments."""


def place_name(kind: SharedKind, name: str) -> str:
    """The name between nodes of code (by its digest), a checkpoint (its number) or an environment (its key)."""
    return f"{kind}:{name}"


@wire
class PeerHello:
    """The body of `POST agents/NODE/peer`: the node is about to serve blocks to others."""

    address: str
    """Where others reach it."""


@wire
class PeerIdentity:
    """The credentials with which a node serves blocks; new for every process that does."""

    certificate: str
    """PEM text; nodes that request blocks expect exactly this certificate."""
    private_key: str = field(repr=False)
    grant_key: str = field(repr=False)
    """In hexadecimal: signs grants for blocks of this node, and of no other."""


@wire
class BlockHash:
    """The expected hash of a block."""

    block: int
    sha256: str


@wire
class BlocksReport:
    """The progress of one input on a node; `BlocksRequest` adds whose it is."""

    content: str
    """A hash of the source's listing: paths, sizes, versions and the block size."""
    count: int
    """How many blocks there are."""
    session: str = ""
    """The session of the server's last answer; empty at first."""
    have: str = "0"
    claimed: str = "0"
    """Blocks that it was assigned to read from the source and does not have yet."""
    wants: int = 0
    """How many more blocks it could read from the source now."""
    hashes: tuple[BlockHash, ...] = field(default=(), metadata=OMIT)
    """Hashes of blocks that it read from the source."""
    hashes_seen: int = 0
    avoid: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Nodes that it cannot reach, that are too slow, or that it does not trust."""
    liars: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Nodes that served wrong bytes."""
    unreachable: bool = field(default=False, metadata=OMIT)
    """There are peers, and it can reach none of them."""


@wire
class BlocksRequest:
    """The body of `POST agents/NODE/blocks`."""

    run: str
    attempt: int
    input: str
    """The name of the input, or of code, a checkpoint or an environment, depending on `kind`."""
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
    """Blocks that others have, and blocks to read from the source."""

    session: str
    """A different value than before: the server was restarted, and has lost earlier reports."""
    source: str = "0"
    """Blocks to read from the source, in addition to those claimed before."""
    hashes: tuple[BlockHash, ...] = ()
    """New since `hashes_seen`."""
    hashes_seen: int = 0
    peers: tuple[PeerOffer, ...] = ()
    again_s: float = 0.25
    """When to report again."""
    notices: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Notices for the followers of the run, each sent once."""
    unknown: bool = field(default=False, metadata=OMIT)
    """The server has no certificate of this node: it must introduce itself again."""
