"""Finds the lines that a pattern matches: a process of its own, to which a runaway pattern is confined.

It is run by path, without site packages, and talks on its standard streams: it reads the pattern, then blocks of
whole lines; for each block it writes where the matching lines begin and end. Standard library only.
"""

from __future__ import annotations

import re
import resource
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

SIZE = struct.Struct("<I")
PAIR = struct.Struct("<II")
CPU_MOST_S = 600
# In these a search over many lines may find less than one in each line.
_LOOKS_AROUND = re.compile(rb"\(\?|\\[AZzbB]|\\[0-9]")


def main() -> None:
    # The server has a time limit for each block; this one ends a process that a killed server left behind.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MOST_S, CPU_MOST_S))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    pattern = _read(source)
    try:
        matching = Lines(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        _write(target, str(error).encode())
        return
    _write(target, b"")
    while (block := _read(source)) is not None:
        _write(target, b"".join(PAIR.pack(*pair) for pair in matching.found(block)))


class Lines:
    """The lines that a pattern matches somewhere."""

    def __init__(self, pattern: bytes | None) -> None:
        pattern = pattern or b""
        self._alone = re.compile(pattern)
        self._many = None if _LOOKS_AROUND.search(pattern) else re.compile(pattern, re.MULTILINE)

    def found(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Where matching lines begin and end; the end is behind the line break."""
        begin = 0
        while begin < len(block):
            if self._many is not None:
                # Searching the whole block at once skips lines that do not match at full speed.
                match = self._many.search(block, begin)
                if match is None:
                    return
                begin = block.rfind(b"\n", begin, match.start()) + 1 or begin
            end = block.find(b"\n", begin)
            end = len(block) if end < 0 else end
            if self._alone.search(block[begin:end]):
                yield begin, min(end + 1, len(block))
            begin = end + 1


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(SIZE.size)
    return source.read(SIZE.unpack(head)[0]) if len(head) == SIZE.size else None


def _write(target: BinaryIO, data: bytes) -> None:
    target.write(SIZE.pack(len(data)) + data)
    target.flush()


if __name__ == "__main__":
    main()
