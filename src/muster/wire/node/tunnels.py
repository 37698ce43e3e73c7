"""Tunnel messages for agents."""

from __future__ import annotations

from muster.wire.message import wire
from muster.wire.tunnels import TunnelTarget


@wire
class TunnelOrder:
    """A person waits for this node: its agent must dial `agents/NODE/tunnels/ID`, or refuse with a reason."""

    id: str
    run: str
    attempt: int
    target: TunnelTarget


@wire
class TunnelRefusal:
    """The body of `POST agents/NODE/tunnels/ID/refusal`."""

    message: str
    hint: str = ""
