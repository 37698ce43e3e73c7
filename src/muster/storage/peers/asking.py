"""Asking other nodes for blocks: what is known of each, and connections pinned to its certificate."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any

from muster.errors import ServerUnavailable
from muster.host.http import Address, Connection, following, trust
from muster.storage.connectors.base import PIECE_BYTES
from muster.storage.peers.blocks import from_text
from muster.wire.data.access import GRANT_HEADER
from muster.wire.node.peers import PeerOffer

_TIMEOUT_S = 5.0
"""Without a byte for this long, a peer counts as lost."""
_AGAIN_AFTER_S = 20.0
_AT_ONCE = 128 << 10
_SMOOTHING = 0.3


class PeerTrouble(Exception):
    """A block did not come from a peer."""

    def __init__(self, message: str, *, unreachable: bool = False, passing: bool = False, lied: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable
        self.passing = passing
        """The next request may succeed: the peer is asked once more before others are."""
        self.lied = lied
        """What it sent cannot be the block: it is not asked again."""


@dataclass
class Known:
    """A peer as this node knows it; changed under the fetcher's lock."""

    offer: PeerOffer
    tls: ssl.SSLContext
    have: int
    in_flight: int = 0
    rate: float | None = None
    got: int = 0
    """Blocks that came from it."""
    unreachable: bool = False
    passing_troubles: int = 0
    """In a row."""
    avoided_until: float = 0.0

    def renewed(self, offer: PeerOffer, count: int) -> None:
        """Take over the server's current offer."""
        if offer.certificate != self.offer.certificate or offer.url != self.offer.url:
            # A new process: what the old one did does not count.
            self.tls, self.unreachable, self.avoided_until = trust_in(offer), False, 0.0
        self.offer, self.have = offer, from_text(offer.have, count)

    def measured(self, size: int, seconds: float) -> None:
        rate = size / max(seconds, 1e-6)
        self.rate = rate if self.rate is None else self.rate + _SMOOTHING * (rate - self.rate)
        self.got += 1
        self.unreachable, self.passing_troubles = False, 0

    def failed(self, trouble: PeerTrouble, now: float) -> None:
        """Record that it did not deliver a block."""
        self.passing_troubles = self.passing_troubles + 1 if trouble.passing else 0
        if self.passing_troubles != 1:
            self.avoid(now, trouble.unreachable)

    def avoid(self, now: float, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        self.avoided_until = now + _AGAIN_AFTER_S
        # It is asked again after a while, as if for the first time.
        self.rate = None


def known(offer: PeerOffer, count: int) -> Known:
    return Known(offer, trust_in(offer), from_text(offer.have, count))


def trust_in(offer: PeerOffer) -> ssl.SSLContext:
    tls = trust(Address(offer.url, pinned_certificate=offer.certificate))
    tls.sslsocket_class = _Punctual
    return tls


class _Deadline(threading.local):
    at = math.inf


_deadline = _Deadline()
"""For the block that the calling thread requests."""


class _TooSlow(TimeoutError):
    pass


class _Punctual(ssl.SSLSocket):
    """Reads nothing after the deadline: a peer could send headers for ever, or a byte at a time.

    While much is still to come, it wakes up once for many packets: that saves an eighth of the processor time.
    """

    _wakes_at = 1

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        if time.monotonic() > _deadline.at:
            raise _TooSlow("it takes too long")
        # More than that is still to come, even if a record has been read in part.
        wakes_at = _AT_ONCE if (nbytes or len(buffer)) >= 2 * _AT_ONCE else 1
        if wakes_at != self._wakes_at:
            self._wakes_at = wakes_at
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wakes_at)
        return super().recv_into(buffer, nbytes, flags)


class Connections:
    """Connections to peers, for all threads: only as many as there are requests at a time, since peers accept few."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Connection]] = {}
        self._lock = threading.Lock()

    def fetch(
        self, offer: PeerOffer, tls: ssl.SSLContext, block: int, shelf: str, view: memoryview, patience_s: float
    ) -> None:
        """Fill the view with a block; raises PeerTrouble."""
        connection = self._taken(offer, tls)
        try:
            self._fill(connection, offer, f"/blocks/{shelf}/{block}", view, patience_s)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.setdefault(offer.node, []).append(connection)

    def _fill(self, connection: Connection, offer: PeerOffer, target: str, view: memoryview, patience_s: float) -> None:
        headers = {GRANT_HEADER: offer.grant}
        _deadline.at = time.monotonic() + patience_s
        try:
            with connection.exchange("GET", target, headers=headers) as response:
                if response.status != 200:
                    said = response.read(300).decode(errors="replace")
                    # A peer that refuses the server's grant, for example because of its clock, will keep refusing.
                    raise PeerTrouble(
                        f"{offer.node} answered {response.status} {said}",
                        unreachable=response.status == 403,
                        passing=response.status == 404,
                    )
                if response.headers.get("Content-Length") != str(len(view)):
                    raise PeerTrouble(f"{offer.node} has a block of another size", lied=True)
                filled = 0
                while filled < len(view):
                    got = response.readinto(view[filled : filled + PIECE_BYTES])
                    if not got:
                        raise PeerTrouble(f"{offer.node} broke off", passing=True)
                    filled += got
                    following.filled(filled)
                if response.read(1):
                    # With chunked encoding it could go on for ever, whatever length it declares.
                    raise PeerTrouble(f"{offer.node} sends more than the block", lied=True)
        except (ServerUnavailable, OSError, http.client.HTTPException) as error:
            if isinstance(error.__cause__ or error, _TooSlow):
                raise PeerTrouble(f"{offer.node} is too slow") from error
            unreachable = isinstance(error, (ServerUnavailable, OSError))
            said = error.message if isinstance(error, ServerUnavailable) else repr(error)
            raise PeerTrouble(f"{offer.node}: {said}", unreachable=unreachable) from error

    def close(self) -> None:
        with self._lock:
            held = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in held:
            connection.close()

    def _taken(self, offer: PeerOffer, tls: ssl.SSLContext) -> Connection:
        """A connection that no other thread uses until it is given back."""
        address = Address(offer.url, pinned_certificate=offer.certificate)
        with self._lock:
            idle = self._idle.get(offer.node, [])
            # After its process restarts the address differs, and the old connections lead nowhere.
            found = next((connection for connection in reversed(idle) if connection.address == address), None)
            if found is not None:
                idle.remove(found)
        return found or Connection(address, _TIMEOUT_S, tls=tls)
