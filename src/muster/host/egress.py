"""Checks connections that this process makes on behalf of a person, at the moment of connecting, so that a name that
resolves to another address a moment later cannot evade the check."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex


@dataclass(frozen=True)
class Fence:
    """Forbids connections to this machine and its link, except to listed addresses."""

    allowed: tuple[Network, ...] = ()

    def refusal(self, address: str) -> str:
        """Why a connection to an address is refused; empty: it is allowed."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return f"{address!r} is not a network address"
        # The same address in another notation.
        mapped = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
        return next((why for item in (found, mapped) if item is not None and (why := self._refusal(item))), "")

    def _refusal(self, found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        if any(found.version == network.version and found in network for network in self.allowed):
            return ""
        if found.is_loopback or found.is_unspecified:
            return f"{found} is the server's own machine"
        if found.is_link_local:
            return f"{found} is an address of the server's own link, such as a cloud's metadata"
        return f"{found} is not the address of a single machine" if found.is_multicast else ""


_current: ContextVar[Fence | None] = ContextVar("fence", default=None)


@contextmanager
def fenced(fence: Fence | None) -> Iterator[None]:
    """Check connections made in this block, including those of event loops that it gives work to."""
    if fence is None:
        yield
        return
    _watch()
    before = _current.get()
    _current.set(fence)
    try:
        yield
    finally:
        _current.set(before)


def fenced_pieces(fence: Fence | None, pieces: Iterator[T]) -> Iterator[T]:
    """Like `fenced`, for an iterator whose pieces may be read by different threads."""
    while True:
        with fenced(fence):
            try:
                piece = next(pieces)
            except StopIteration:
                return
        yield piece


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and networks of settings; a name stands for the addresses that it resolves to now."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            found += [ipaddress.ip_network(item[4][0]) for item in socket.getaddrinfo(text, None)]
    return tuple(dict.fromkeys(found))


def _watch() -> None:
    """Hook into every connection of this process; those outside of a fence are not checked."""
    if socket.socket.connect is not _checked_connect:
        socket.socket.connect = _checked_connect  # type: ignore[method-assign,assignment]
        socket.socket.connect_ex = _checked_connect_ex  # type: ignore[method-assign,assignment]


def _checked_connect(self: socket.socket, address: Any) -> None:
    _check(self, address)
    return _connect(self, address)


def _checked_connect_ex(self: socket.socket, address: Any) -> int:
    _check(self, address)
    return _connect_ex(self, address)


def _check(connecting: socket.socket, address: Any) -> None:
    fence = _current.get()
    if fence is None:
        return
    if connecting.family not in (socket.AF_INET, socket.AF_INET6):
        raise PermissionError(f"the server connects to no {connecting.family.name} socket for a datastore")
    host = str(address[0])
    try:
        ipaddress.ip_address(host.partition("%")[0])
        addresses = [host]
    except ValueError:
        addresses = [str(item[4][0]) for item in socket.getaddrinfo(host, None)]
    if why := next((why for item in addresses if (why := fence.refusal(item))), ""):
        raise PermissionError(f"the server does not connect to {host}: {why}, and is not listed under `reach`")
