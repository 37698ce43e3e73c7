"""Growing files and how much of them the server has: decides which bytes go next, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PUNCH_STEP = 1 << 20
TAIL_BYTES = 64
_LEAST_SHARE = 64 << 10


class Piece(NamedTuple):
    """Bytes to send: `size` from the file at `position`, or the mark when `mark` is set."""

    offset: int
    position: int
    size: int
    mark: bytes = b""


@dataclass
class Stream:
    """One stream of an attempt.

    Offsets are those of the stream. They differ from positions in the file by `base` when a rank truncated its
    own log (`echo … > /dev/stderr` does): what follows is a continuation.
    """

    name: str
    limit: int | None = None
    """The size after which only a mark is sent."""
    acked: int = 0
    base: int = 0
    size: int = 0
    """The file's size, as last seen."""
    punched: int = 0
    """Position in the file up to which its blocks were freed."""
    tail: bytes = b""
    """The last bytes that the server has, to recognize the file."""
    waits_at: int | None = None
    """The file's size when its last bytes were held back, because they may begin a secret."""

    def update_size(self, size: int) -> None:
        """Record the current size of the file."""
        if size < self.size:
            self.restart()
        self.size = size

    def restart(self) -> None:
        """The file was truncated: its content continues where the server is. What was not sent is lost."""
        self.base = self.acked
        self.punched = 0
        self.tail = b""

    def remember(self, offset: int, data: bytes) -> None:
        """Remember the end of what was acknowledged."""
        known = data[: self.acked - offset] if offset < self.acked else b""
        self.tail = known[-TAIL_BYTES:] if offset + len(known) == self.acked else b""

    @property
    def length(self) -> int:
        """The stream's length for the server, with the file's current content."""
        whole = self.base + self.size
        if self.limit is not None and whole > self.limit:
            return self.limit + len(self.mark)
        return whole

    @property
    def mark(self) -> bytes:
        return f"\n[muster: this log passed its limit of {self.limit} bytes; what follows is not kept]\n".encode()

    def is_cut_at(self, offset: int) -> bool:
        """Whether the limit ends the stream there."""
        return self.limit is not None and offset >= self.limit

    @property
    def pending(self) -> int:
        return max(0, self.length - self.acked)

    def next_piece(self, room: int) -> Piece | None:
        """The next bytes that the server lacks, at most `room`; None when it has all."""
        if not self.pending or room <= 0:
            return None
        if self.limit is not None and self.acked >= self.limit:
            rest = self.mark[self.acked - self.limit :]
            return Piece(self.acked, 0, len(rest), rest)
        end = self.base + self.size
        if self.limit is not None:
            end = min(end, self.limit)
        return Piece(self.acked, self.acked - self.base, min(end - self.acked, room))

    def acknowledge(self, length: int) -> None:
        """The server has this much: more than before, or less if it lost something."""
        if length != self.acked:
            self.tail = b""
        # Freed blocks cannot be sent again: the rest continues where the server is.
        self.base = min(self.base, length - self.punched)
        self.acked = length

    def punchable(self) -> tuple[int, int] | None:
        """(position, size) of what may be freed, in whole steps."""
        done = self.acked - self.base
        if self.limit is not None and self.acked >= self.limit:
            done = self.size
        # The last bytes stay, to check that the file is still the same.
        end = (min(done, self.size) - TAIL_BYTES) // PUNCH_STEP * PUNCH_STEP
        if end <= self.punched:
            return None
        return self.punched, end - self.punched


def share(streams: Sequence[Stream], room: int) -> list[tuple[Stream, Piece]]:
    """Split a batch among streams: short ones whole, long ones in equal parts."""
    chosen: list[tuple[Stream, Piece]] = []
    waiting = sorted((stream for stream in streams if stream.pending), key=lambda stream: stream.pending)
    while waiting and room > 0:
        part = max(room // len(waiting), _LEAST_SHARE)
        stream = waiting.pop(0)
        piece = stream.next_piece(min(part, room))
        if piece is not None:
            chosen.append((stream, piece))
            room -= piece.size
    return chosen


def covered(streams: Sequence[Stream], chosen: Sequence[tuple[Stream, Piece]]) -> bool:
    """Whether the server will have every byte once it has applied the chosen pieces, whatever it had before.

    Only a piece from offset 0 fits any server; a later one may be refused by one that lost something.
    """
    sent = {id(stream): piece for stream, piece in chosen}
    for stream in streams:
        if not stream.pending:
            continue
        piece = sent.get(id(stream))
        if piece is None or piece.offset != 0 or piece.size < stream.length:
            return False
    return True
