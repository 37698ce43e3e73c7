"""Which of this machine's addresses others reach it by, and from where a port answers. Standard library only."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ELSEWHERE = "198.51.100.1"
"""Nobody's: the way to it is the way to everywhere."""
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
# The kernel's little machine that looks at packets: load a word, mask it, compare, go on or return.
_LOAD, _MASK, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_IN_NETWORK_HEADER, _PROTOCOL = 0xFFF00000, 0xFFFFF000
_SOURCE = {4: 12, 6: 8}
"""Where the sender's address stands in a packet's header."""
_TYPE = {4: 0x0800, 6: 0x86DD}
_TAKE = 0xFFFFFFFF


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


def network_of(subnet: str | None) -> Network | None:
    """A subnet by its addresses; None for a cloud's name of one."""
    try:
        return ipaddress.ip_network(subnet, strict=False) if subnet else None
    except ValueError:
        return None


def answer_only(listener: socket.socket, networks: Iterable[Network]) -> None:
    """Have a listening socket answer nobody but these networks and this machine: the kernel drops the rest unanswered.

    No rights are needed for it. PermissionError where the socket's owner has locked it.
    """
    instructions = b"".join(_filter([*_LOOPBACK, *networks]))
    kept = ctypes.create_string_buffer(instructions)
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(kept))
    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


def answer_everybody(listener: socket.socket) -> None:
    """Undo that."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
    except FileNotFoundError:
        pass  # it had none


def _filter(networks: Iterable[Network]) -> Iterator[bytes]:
    """Returns from the first network that the sender is in; the packet is dropped where there is none."""
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
    """One step; `otherwise`: how many of the next ones are left out where a comparison fails."""
    return struct.pack("=HBBI", code, 0, otherwise, operand)
