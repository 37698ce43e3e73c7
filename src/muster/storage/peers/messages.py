"""Messages between an agent and the process that serves blocks."""

from __future__ import annotations

from muster.wire.message import wire
from muster.wire.node.peers import PeerIdentity


@wire
class Serve:
    """Serve the blocks of a cache, as this node."""

    node: str
    address: str
    cache: str
    identity: PeerIdentity


@wire
class Serving:
    """The process listens."""

    port: int
