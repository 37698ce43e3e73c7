"""Steps that scripts print, recorded as their progress where they report none themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import delete, select

from muster.control.steps import LINE_BYTES, Counted, read_line
from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.wire.codec import to_json
from muster.wire.node.agents import Chunk
from muster.wire.runs import Progress

Stream = tuple[str, int, str]
"""A run, the number of its attempt, and the name of a log."""

_LOOKED_AT = 16 << 10
"""How much of one delivery is read: the end is enough."""
_MOST_STREAMS = 4096
_AGAIN_S = 2.0


@dataclass
class _Followed:
    counted: Counted = field(default_factory=Counted)
    rest: bytes = b""
    found: Progress | None = None
    is_kept: bool = True
    kept_at: float = 0.0


@dataclass
class PrintedSteps:
    """The counts printed in logs that are growing; may be used from any thread."""

    _streams: dict[Stream, _Followed] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, chunks: Iterable[Chunk]) -> None:
        """Read what was appended to logs."""
        with self._lock:
            for chunk in chunks:
                key = (chunk.run, chunk.attempt, chunk.stream)
                # The log that grew last is evicted last.
                followed = self._streams[key] = self._streams.pop(key, _Followed())
                _read(followed, bytes(chunk.data[-_LOOKED_AT:]))
            while len(self._streams) > _MOST_STREAMS:
                del self._streams[next(iter(self._streams))]

    def due(self, runs: Iterable[str]) -> list[tuple[Stream, Progress]]:
        """What should be recorded now: not at every line, and all that is left of `runs`, which are about to end."""
        ending, now = set(runs), clock.now()
        with self._lock:
            found = []
            for key, item in self._streams.items():
                if item.found is None or item.is_kept or (now - item.kept_at < _AGAIN_S and key[0] not in ending):
                    continue
                item.is_kept, item.kept_at = True, now
                found.append((key, item.found))
            return found


def _read(followed: _Followed, data: bytes) -> None:
    # A progress bar overwrites itself: each of its states is a line.
    *lines, followed.rest = (followed.rest + data).replace(b"\r", b"\n").split(b"\n")
    followed.rest = followed.rest[-LINE_BYTES:]
    for line in lines:
        if not line or len(line) > LINE_BYTES:
            continue
        followed.counted, found = read_line(followed.counted, line.decode(errors="replace"))
        if found is not None and found != followed.found:
            followed.found, followed.is_kept = found, False


def keep(transaction: Transaction, found: Iterable[tuple[Stream, Progress]]) -> None:
    """Record printed progress of ranks that report none themselves."""
    ranks, progress = tables.ranks, tables.progress
    for (run_id, attempt, stream), item in found:
        mine = (ranks.c.run_id == run_id, ranks.c.number == attempt, ranks.c.log == stream)
        rank = transaction.execute(select(ranks.c.rank).where(*mine).limit(1)).scalar()
        if rank is None:
            continue
        reported = progress.c.printed.is_not(True)
        newer = (progress.c.attempt > attempt) | ((progress.c.attempt == attempt) & reported)
        if transaction.execute(select(progress.c.rank).where(progress.c.run_id == run_id, newer).limit(1)).first():
            # Where some rank of a gang reports progress, printed steps of others do not count.
            continue
        row = {**to_json(item), "run_id": run_id, "attempt": attempt, "rank": rank, "printed": True}
        upsert(transaction, progress, row)


def drop(transaction: Transaction, run_id: str) -> None:
    """Remove printed progress of a run that reports its own."""
    progress = tables.progress
    transaction.execute(delete(progress).where(progress.c.run_id == run_id, progress.c.printed.is_(True)))
