"""The parts of a long log that matter: its end, and where that explains nothing, the last error before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from muster.diagnosis.causes import is_victim
from muster.diagnosis.log import read
from muster.wire.verdicts import RankEvidence

TAIL_BYTES = 32 << 10
_PASSAGE_BYTES = 12 << 10
_BEFORE_BYTES = 512
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
"""How far back a log is searched."""

# The beginning of an exception, or the words of a program that is about to end.
_MARKS = (
    b"Traceback (most recent call last)",
    b"Exception in thread ",
    b"terminate called ",
    b"panicked at ",
    b"Caused by: ",
    b"Fatal Python error: ",
)

# They report the failure of another process.
_NOTICED = re.compile(r"ChildFailedError|CalledProcessError|ProcessExitedException|exited unexpectedly")

ReadAt = Callable[[int, int], bytes]
"""Bytes of a log: from an offset, so many."""


def is_explained(rank: RankEvidence) -> bool:
    """Whether the known part of a rank's log says why it ended, so that nothing before it has to be searched."""
    if rank.succeeded or rank.signal in (9, 15) or rank.exit_code in (126, 127) or rank.refusal or rank.lost_with:
        return True
    return any(
        raised.line and raised.setting != "ignored" and not _NOTICED.search(raised.line) and not is_victim(raised)
        for raised in read(rank.tail).raised
    )


def whole(rank_tail: str, size: int, read_at: ReadAt) -> str:
    """The end of a log, with the last passage before it that reports an error; just the end where there is none."""
    begin = _last_mark(size - TAIL_BYTES, read_at)
    if begin is None:
        return rank_tail
    start = max(0, begin - _BEFORE_BYTES)
    passage = read_at(start, min(_PASSAGE_BYTES, size - TAIL_BYTES - start)).decode(errors="replace")
    if start:
        passage = passage.partition("\n")[2]
    return f"{passage}\n…\n{rank_tail}"


def shortened(text: str, rank: RankEvidence) -> str:
    """The parts of a whole log that the judgement gets."""
    data = text.encode()
    if len(data) <= TAIL_BYTES:
        return text
    tail = data[-TAIL_BYTES:].decode(errors="replace")
    if is_explained(replace(rank, tail=tail)):
        return tail
    return whole(tail, len(data), lambda offset, length: data[offset : offset + length])


def _last_mark(end: int, read_at: ReadAt) -> int | None:
    """Where the last sign of an error before `end` begins."""
    longest = max(map(len, _MARKS))
    stop = max(0, end - _MOST_BYTES)
    while end > stop:
        start = max(stop, end - _CHUNK_BYTES)
        chunk = read_at(start, end - start + longest)
        found = max(chunk.rfind(mark) for mark in _MARKS)
        if found >= 0:
            return start + found
        end = start
    return None
