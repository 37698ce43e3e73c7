"""This machine's addresses towards others, and restricting ports to networks. Standard library only."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ELSEWHERE = "198.51.100.1"
"""An unassigned address: its route is the default route."""
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
# Classic BPF instructions: load a word, mask it, compare, continue or return.
_LOAD, _MASK, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_IN_NETWORK_HEADER, _PROTOCOL = 0xFFF00000, 0xFFFFF000
_SOURCE = {4: 12, 6: 8}
"""Offset of the sender's address in a packet's header."""
_TYPE = {4: 0x0800, 6: 0x86DD}
_TAKE = 0xFFFFFFFF


def source_of(host: str, port: int = 443, family: int = socket.AF_UNSPEC) -> str:
    """This machine's address on the route to a host; OSError where there is no route."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Nothing is sent: the kernel only chooses the route.
        probe.connect(target)
        return str(probe.getsockname()[0])


def address_towards(hosts: Iterable[str]) -> str:
    """This machine's address on the interface that routes to the first of these hosts that is another machine.

    Where all of them are this machine, the address of the default route: one that others can use, loopback only if
    there is no other.
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
    """A host in the notation of URLs."""
    return f"[{host}]" if ":" in host else host


def reachable(url: str) -> str:
    """The URL by which other machines reach a server; for one on all interfaces with this machine's address."""
    parts = urlsplit(url)
    try:
        everywhere = ipaddress.ip_address(parts.hostname or "").is_unspecified
    except ValueError:
        everywhere = False
    return f"{parts.scheme}://{in_url(address_towards(()))}:{parts.port}" if everywhere else url


def network_of(subnet: str | None) -> Network | None:
    """The network of a subnet; None where it is a cloud's name of one."""
    try:
        return ipaddress.ip_network(subnet, strict=False) if subnet else None
    except ValueError:
        return None


def answer_only(listener: socket.socket, networks: Iterable[Network]) -> None:
    """Have a listening socket accept only these networks and this machine: the kernel drops other packets.

    This needs no privileges. PermissionError where the socket's owner has locked its filter.
    """
    instructions = b"".join(_filter([*_LOOPBACK, *networks]))
    kept = ctypes.create_string_buffer(instructions)
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(kept))
    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


def answer_everybody(listener: socket.socket) -> None:
    """Undo `answer_only`."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
    except FileNotFoundError:
        pass  # it had none


def _filter(networks: Iterable[Network]) -> Iterator[bytes]:
    """Accepts from the first network that contains the sender; packets of others are dropped."""
    for network in networks:
        size = network.max_prefixlen // 8
        words = [
            (_SOURCE[network.version] + at, *struct.unpack("!II", mask[at : at + 4] + address[at : at + 4]))
            for mask, address in [(network.netmask.packed, network.network_address.packed)]
            for at in range(0, size, 4)
        ]
        yield _instruction(_LOAD, _PROTOCOL)
        yield _instruction(_EQUAL, _TYPE[network.version], otherwise=3 * len(words) + 1)
        for left, (offset, mask_word, word) in zip(range(len(words), 0, -1), words, strict=True):
            yield _instruction(_LOAD, _IN_NETWORK_HEADER + offset)
            yield _instruction(_MASK, mask_word)
            yield _instruction(_EQUAL, word, otherwise=3 * (left - 1) + 1)
        yield _instruction(_RETURN, _TAKE)
    yield _instruction(_RETURN, 0)


def _instruction(code: int, operand: int, otherwise: int = 0) -> bytes:
    """One instruction; `otherwise`: how many are skipped where a comparison fails."""
    return struct.pack("=HBBI", code, 0, otherwise, operand)
