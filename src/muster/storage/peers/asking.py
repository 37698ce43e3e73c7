"""Asking other nodes for blocks: what is known of each, and connections that know its certificate."""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass

from muster.errors import ServerUnavailable
from muster.host.http import Address, Connection, trust
from muster.storage.peers.blocks import from_text
from muster.wire.data.access import GRANT_HEADER
from muster.wire.node.peers import PeerOffer

_TIMEOUT_S = 5.0
"""Without a byte for so long, a peer counts as lost."""
_PIECE = 256 << 10
_AGAIN_AFTER_S = 20.0
_SMOOTHING = 0.3


class PeerTrouble(Exception):
    """A block did not come from a peer."""

    def __init__(self, message: str, *, unreachable: bool = False, too_slow: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable
        self.too_slow = too_slow


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
    avoided_until: float = 0.0

    def renewed(self, offer: PeerOffer, count: int) -> None:
        """What the server says of it now."""
        if offer.certificate != self.offer.certificate or offer.url != self.offer.url:
            # Another process: what the last one did says nothing of it.
            self.tls, self.unreachable, self.avoided_until = trust_in(offer), False, 0.0
        self.offer, self.have = offer, from_text(offer.have, count)

    def measured(self, size: int, seconds: float) -> None:
        rate = size / max(seconds, 1e-6)
        self.rate = rate if self.rate is None else self.rate + _SMOOTHING * (rate - self.rate)
        self.got += 1
        self.unreachable = False

    def avoid(self, now: float, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        self.avoided_until = now + _AGAIN_AFTER_S
        # It is asked again after a while, as if for the first time.
        self.rate = None


def known(offer: PeerOffer, count: int) -> Known:
    return Known(offer, trust_in(offer), from_text(offer.have, count))


def trust_in(offer: PeerOffer) -> ssl.SSLContext:
    return trust(Address(offer.url, pinned_certificate=offer.certificate))


class Connections:
    """One thread's connections to peers."""

    def __init__(self) -> None:
        self._held: dict[str, Connection] = {}

    def fetch(
        self, offer: PeerOffer, tls: ssl.SSLContext, block: int, shelf: str, view: memoryview, patience_s: float
    ) -> None:
        """Fill the view with a block; raises PeerTrouble."""
        connection = self._to(offer, tls)
        began = time.monotonic()
        try:
            headers = {GRANT_HEADER: offer.grant}
            with connection.exchange("GET", f"/blocks/{shelf}/{block}", headers=headers) as response:
                if response.status != 200:
                    said = response.read(300).decode(errors="replace")
                    raise PeerTrouble(f"{offer.node} answered {response.status} {said}")
                if response.headers.get("Content-Length") != str(len(view)):
                    raise PeerTrouble(f"{offer.node} has a block {block} of another size")
                filled = 0
                while filled < len(view):
                    got = response.readinto(view[filled : filled + _PIECE])
                    if not got:
                        raise PeerTrouble(f"{offer.node} broke off")
                    filled += got
                    if time.monotonic() - began > patience_s:
                        raise PeerTrouble(f"{offer.node} is too slow", too_slow=True)
                if response.read(1):
                    # In pieces of its own it could go on for ever, whatever length it names.
                    connection.close()
                    raise PeerTrouble(f"{offer.node} sends more than the block")
        except ServerUnavailable as error:
            raise PeerTrouble(f"{offer.node}: {error.message}", unreachable=True) from error
        except (OSError, http.client.HTTPException) as error:
            raise PeerTrouble(f"{offer.node}: {error!r}", unreachable=isinstance(error, OSError)) from error

    def close(self) -> None:
        for connection in self._held.values():
            connection.close()
        self._held.clear()

    def _to(self, offer: PeerOffer, tls: ssl.SSLContext) -> Connection:
        address = Address(offer.url, pinned_certificate=offer.certificate)
        held = self._held.get(offer.node)
        if held is None or held.address != address:
            if held is not None:
                held.close()
            held = self._held[offer.node] = Connection(address, _TIMEOUT_S, tls=tls)
        return held
