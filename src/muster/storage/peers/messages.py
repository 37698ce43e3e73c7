"""What an agent says to the process that serves blocks, and what it hears."""

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
    """It listens."""

    port: int
