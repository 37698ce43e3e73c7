"""XDR (RFC 4506): the encoding of messages between NFS clients and servers."""

from __future__ import annotations

import struct


class Garbled(ValueError):
    """The bytes received are not a message of this protocol."""


class Reader:
    """Reads one value after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fixed(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise Garbled("it is cut off")
        self._at += count + -count % 4
        return found

    def u32(self) -> int:
        return int.from_bytes(self.fixed(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.fixed(8), "big")

    def opaque(self, most: int) -> bytes:
        count = self.u32()
        if count > most:
            raise Garbled(f"{count} bytes where {most} are the most")
        return self.fixed(count)

    def bitmap(self) -> int:
        """A set of numbers, as the bits of one."""
        found = 0
        for word in range(_words(self.u32())):
            found |= self.u32() << 32 * word
        return found


def _words(count: int) -> int:
    if count > 8:
        raise Garbled(f"a set of {count} words")
    return count


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


def u64(value: int) -> bytes:
    return struct.pack(">Q", value & 0xFFFFFFFFFFFFFFFF)


def opaque(data: bytes) -> bytes:
    return u32(len(data)) + data + b"\0" * (-len(data) % 4)


def bitmap(bits: int) -> bytes:
    words = [bits >> at & 0xFFFFFFFF for at in range(0, bits.bit_length(), 32)]
    return u32(len(words)) + b"".join(u32(word) for word in words)
