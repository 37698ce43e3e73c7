"""Which of this machine's addresses others reach it by. Standard library only."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_ELSEWHERE = "198.51.100.1"
"""Nobody's: the way to it is the way to everywhere."""


def source_of(host: str, port: int = 443, family: int = socket.AF_UNSPEC) -> str:
    """The address from which this machine reaches a host; OSError where there is no way."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Nothing is sent: the kernel only chooses the way.
        probe.connect(target)
        return str(probe.getsockname()[0])


def address_towards(hosts: Iterable[str]) -> str:
    """This machine's address on the interface that routes to the first of these hosts that is another machine.

    Where they are all this machine, that of the default route: an address that others can use, never loopback as long
    as there is another.
    """
    for host in (*hosts, _ELSEWHERE, socket.gethostname()):
        try:
            found = source_of(host, family=socket.AF_INET)
        except (OSError, UnicodeError):
            continue
        if not ipaddress.ip_address(found).is_loopback:
            return found
    return "127.0.0.1"


def in_url(host: str) -> str:
    """A host as URLs write it."""
    return f"[{host}]" if ":" in host else host


def reachable(url: str) -> str:
    """The address by which other machines reach a server; one that listens everywhere has this machine's."""
    parts = urlsplit(url)
    try:
        everywhere = ipaddress.ip_address(parts.hostname or "").is_unspecified
    except ValueError:
        everywhere = False
    return f"{parts.scheme}://{in_url(address_towards(()))}:{parts.port}" if everywhere else url
