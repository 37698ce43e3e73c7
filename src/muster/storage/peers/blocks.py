"""The files of a source as one row of blocks, and sets of blocks. Pure.

The files follow each other in the order of their paths, and the row is cut into blocks of one size. So a thousand small
files are one block, and a large file is many.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from muster.storage.connectors.base import BLOCK_BYTES
from muster.wire.data.access import FileEntry

LEAST_BYTES = 256 << 10
MOST_BYTES = BLOCK_BYTES
_BLOCKS = 512
"""Few enough to keep track of, and enough that the last ones take little of the total time."""


@dataclass(frozen=True)
class Part:
    """Bytes of one file."""

    entry: FileEntry
    offset: int
    length: int


class Row:
    """Files as blocks."""

    def __init__(self, entries: Sequence[FileEntry]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.path)
        self._starts = [0, *accumulate(entry.size for entry in self.entries)]
        self.size = self._starts[-1]
        self.block_bytes = block_bytes(self.size)
        self.count = -(-self.size // self.block_bytes)

    def length(self, block: int) -> int:
        """A block's size: the same for all but the last."""
        return min(self.block_bytes, self.size - block * self.block_bytes)

    def parts(self, block: int) -> Iterator[Part]:
        """The parts of files that make up a block."""
        position = block * self.block_bytes
        end = position + self.length(block)
        # The last file that starts there or before; empty files have no part in any block.
        index = bisect_right(self._starts, position) - 1
        while position < end:
            start, entry = self._starts[index], self.entries[index]
            length = min(start + entry.size, end) - position
            if length > 0:
                yield Part(entry, position - start, length)
                position += length
            index += 1

    def content(self) -> str | None:
        """The hash that names the source's content; None if the version of a file is unknown."""
        lines = [[entry.path, entry.size, entry.etag or entry.sha256] for entry in self.entries]
        if not self.count or any(version is None for _, _, version in lines):
            return None
        return hashlib.sha256(json.dumps([self.block_bytes, lines]).encode()).hexdigest()


def shelf_name(where: str, content: str) -> str:
    """The name of a content among nodes: what lies at one place, in one version."""
    return hashlib.sha256(json.dumps([where, content]).encode()).hexdigest()


def block_bytes(size: int) -> int:
    """The block size for that much data: a power of two."""
    wanted = LEAST_BYTES
    while wanted < MOST_BYTES and wanted * _BLOCKS < size:
        wanted *= 2
    return wanted


def everything(count: int) -> int:
    return (1 << count) - 1


def set_of(blocks: Iterable[int]) -> int:
    found = 0
    for block in blocks:
        found |= 1 << block
    return found


def members(blocks: int, most: int | None = None) -> list[int]:
    """The blocks of a set in order, the first `most` of them."""
    found: list[int] = []
    while blocks and (most is None or len(found) < most):
        lowest = blocks & -blocks
        found.append(lowest.bit_length() - 1)
        blocks ^= lowest
    return found


def to_text(blocks: int) -> str:
    return f"{blocks:x}"


def from_text(text: str, count: int) -> int:
    """A set of at most `count` blocks; raises ValueError for anything else."""
    # Its length is checked first: the number may be as long as a request's body.
    if len(text) > count // 4 + 1:
        raise ValueError(f"a set of {count} blocks has at most {count // 4 + 1} digits, and this has {len(text)}")
    blocks = int(text, 16)
    if blocks < 0 or blocks >> count:
        raise ValueError(f"there are {count} blocks, and this set has others")
    return blocks
