"""Joins two connections into one stream, with backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from muster.host.tunnels import keep_alive

BUFFER_BYTES = 256 << 10
_LAST_BYTES_S = 10.0
"""How long an end may take to read the rest once the other is gone."""


class End(asyncio.Protocol):
    """One end of a tunnel. Nothing is read from it before it is joined."""

    def __init__(self, transport: asyncio.Transport, ended: Callable[[], None]) -> None:
        self._transport = transport
        self._ended = ended
        self._peer: End | None = None
        self._lost = False
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        transport.pause_reading()
        transport.set_protocol(self)
        if (connection := transport.get_extra_info("socket")) is not None:
            keep_alive(connection)

    def join(self, peer: End) -> None:
        """Start relaying, both ways."""
        for one, other in ((self, peer), (peer, self)):
            one._peer = other
        for one in (self, peer):
            if not one._lost:
                one._transport.resume_reading()

    @property
    def lost(self) -> bool:
        return self._lost or self._transport.is_closing()

    def close(self) -> None:
        """Send what is left, within a limit, and close."""
        if not self._lost:
            self._transport.close()
            asyncio.get_running_loop().call_later(_LAST_BYTES_S, self._abort)

    def _abort(self) -> None:
        if not self._lost:
            self._transport.abort()

    # Called by the transport

    def data_received(self, data: bytes) -> None:
        if self._peer is not None and not self._peer.lost:
            self._peer._transport.write(data)

    def pause_writing(self) -> None:
        if self._peer is not None and not self._peer.lost:
            self._peer._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None and not self._peer.lost:
            self._peer._transport.resume_reading()

    def eof_received(self) -> bool:
        # Ends signal by a frame that nothing more follows; the end of the connection is the end of the tunnel.
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if self._peer is not None:
            self._peer.close()
        self._ended()


def switch(transport: Any, protocol: str) -> None:
    """Send the response that switches the connection to a stream."""
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    cast(asyncio.Transport, transport).write(head.encode())
