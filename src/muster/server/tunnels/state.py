"""Tunnels that wait for an end, and joined ones. Lives on the event loop, in memory only.

Tunnels end with the server: both ends notice, and a client reports that it was cut.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from muster import errors
from muster.control.access import Caller
from muster.defaults import TUNNEL_DIAL_S, TUNNELS_MOST, TUNNELS_PER_NODE
from muster.server.tunnels.relay import End
from muster.wire.node.tunnels import TunnelOrder
from muster.wire.tunnels import TunnelTarget


@dataclass
class Tunnel:
    """One tunnel, from its request until either end closes."""

    order: TunnelOrder
    node: str
    caller: Caller
    arrived: asyncio.Future[End]
    """The node's end; an error where the node refuses, or does not come in time."""
    expiry: asyncio.TimerHandle
    ends: list[End] = field(default_factory=list)
    is_claimed: bool = False
    """The person's end is connected and waits for the node's."""


@dataclass
class Tunnels:
    """Every tunnel of the workspace."""

    _tunnels: dict[str, Tunnel] = field(default_factory=dict)

    def open(self, run: str, attempt: int, node: str, target: TunnelTarget, caller: Caller) -> Tunnel:
        """Open a tunnel that waits for both its ends."""
        refuse_too_many(len(self._tunnels), sum(tunnel.node == node for tunnel in self._tunnels.values()), node)
        loop = asyncio.get_running_loop()
        order = TunnelOrder(secrets.token_urlsafe(24), run, attempt, target)
        expiry = loop.call_later(TUNNEL_DIAL_S, self._expire, order.id)
        tunnel = self._tunnels[order.id] = Tunnel(order, node, caller, loop.create_future(), expiry)
        # Nobody may be waiting for it.
        tunnel.arrived.add_done_callback(lambda future: future.cancelled() or future.exception())
        return tunnel

    def waiting_for(self, node: str) -> tuple[TunnelOrder, ...]:
        """The tunnels that a node's agent must dial."""
        return tuple(
            tunnel.order
            for tunnel in self._tunnels.values()
            if tunnel.node == node and not tunnel.arrived.done() and not tunnel.ends
        )

    def from_node(self, tunnel_id: str, node: str, make: Callable[[Callable[[], None]], End]) -> None:
        """The node's end is connected. `make` turns its connection into an end, which reports when it is lost."""
        tunnel = self._tunnels.get(tunnel_id)
        if tunnel is None or tunnel.node != node or tunnel.arrived.done():
            raise _unknown()
        end = make(lambda: self._drop(tunnel))
        tunnel.ends.append(end)
        tunnel.arrived.set_result(end)

    def refuse(self, tunnel_id: str, node: str, message: str, hint: str) -> None:
        """The node refuses, with a reason."""
        tunnel = self._tunnels.get(tunnel_id)
        if tunnel is not None and tunnel.node == node and not tunnel.arrived.done():
            tunnel.arrived.set_exception(errors.Conflict(message, hint))

    async def node_end(self, tunnel_id: str, caller: Caller) -> Tunnel:
        """The person's end is connected: wait for the node's."""
        tunnel = self._tunnels.get(tunnel_id)
        if tunnel is None or tunnel.caller != caller or tunnel.is_claimed:
            raise _unknown()
        tunnel.is_claimed = True
        try:
            await tunnel.arrived
        except BaseException:
            self._drop(tunnel)
            raise
        return tunnel

    def join(self, tunnel: Tunnel, make: Callable[[Callable[[], None]], End]) -> None:
        """Join a person's end with the node's."""
        tunnel.expiry.cancel()
        try:
            end = make(lambda: self._drop(tunnel))
        except BaseException:
            self._drop(tunnel)
            raise
        tunnel.ends.append(end)
        tunnel.ends[0].join(end)
        if tunnel.ends[0].lost:
            # It closed a moment before.
            self._drop(tunnel)

    def keep(self, holds: Callable[[Caller], bool]) -> None:
        """End the tunnels of callers whose rights have shrunk."""
        for tunnel in [tunnel for tunnel in self._tunnels.values() if not holds(tunnel.caller)]:
            self._drop(tunnel)

    def close(self) -> None:
        """The server shuts down."""
        for tunnel in list(self._tunnels.values()):
            self._drop(tunnel)

    def _expire(self, tunnel_id: str) -> None:
        tunnel = self._tunnels.get(tunnel_id)
        if tunnel is None:
            return
        if not tunnel.arrived.done():
            tunnel.arrived.set_exception(
                errors.Conflict(
                    f"node {tunnel.node} did not answer within {TUNNEL_DIAL_S:g} s",
                    "`muster status` shows whether its agent is there; try it again.",
                )
            )
        self._drop(tunnel)

    def _drop(self, tunnel: Tunnel) -> None:
        """Remove an ended tunnel, and close what is left of it."""
        self._tunnels.pop(tunnel.order.id, None)
        tunnel.expiry.cancel()
        for end in tunnel.ends:
            end.close()


def refuse_too_many(open_now: int, on_node: int, node: str) -> None:
    """Refuse a tunnel beyond the limit. Pure."""
    hint = "End some of them: shells, forwarded connections and stacks that are being read count."
    if open_now >= TUNNELS_MOST:
        raise errors.Conflict(f"this server has {open_now} open tunnels, as many as it takes", hint)
    if on_node >= TUNNELS_PER_NODE:
        raise errors.Conflict(f"{on_node} tunnels lead to node {node}, as many as it takes", hint)


def _unknown() -> errors.NotFound:
    return errors.NotFound("no such tunnel waits here", "It may have waited too long, or its server was restarted.")
