"""Reads what ranks printed: in order of arrival, from the end backwards, or line by line.

Everything here reads files: it belongs in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from muster import errors
from muster.server.data.state import WorkspaceFiles
from muster.server.logs.cursor import Cursor
from muster.server.logs.matching import Matcher
from muster.store.arrivals import Arrival, Log
from muster.wire.stream import LogPiece, LogQuery

PIECE_BYTES = 256 << 10
LINE_MOST_BYTES = 256 << 10
"""A line that is longer is cut."""
_ROUND_BYTES = 2 << 20
_SEARCH_BYTES = 8 << 20
_ENTRIES = 512
_NEAR_BYTES = 4 << 10


class _Span(NamedTuple):
    """Consecutive entries of the same log."""

    log: Log
    offset: int
    length: int
    entries: int


@dataclass
class LogReader:
    """Reads one run's logs for one follower; the cursor moves along."""

    files: WorkspaceFiles
    run_id: str
    query: LogQuery
    cursor: Cursor
    matcher: Matcher | None = None
    of_rank: frozenset[Log] = frozenset()
    """The logs of the requested rank."""
    done: bool = False
    """All that was requested has been read."""
    _begun: set[Log] | None = None
    """The logs that had begun by then, where reading did not begin at the first entry."""
    _starts: dict[Log, int] = field(default_factory=dict)
    """The offset of each log's incomplete last line."""

    def close(self) -> None:
        if self.matcher is not None:
            self.matcher.close()

    def begin(self) -> Iterator[bool]:
        """Seek to where the query begins; yields False now and then while it searches, and True at the end."""
        query, cursor = self.query, self.cursor
        count = self.files.arrivals.count(self.run_id)
        if cursor.entry or cursor.within:
            self._check_cursor(count)
        elif cursor == Cursor():
            if query.since is not None:
                cursor.entry = self.files.arrivals.first_since(self.run_id, query.since)
            if query.tail is not None:
                for found in self._find_tail(query.tail, count, cursor.entry):
                    if found is None:
                        yield False
                    else:
                        cursor.entry, cursor.within = found
            cursor.begun, cursor.begun_within = cursor.entry, cursor.within
        if cursor.begun or cursor.begun_within:
            self._begun = self._logs_between(cursor.begun, cursor.entry)
            if cursor.within and (cursor.entry, cursor.within) > (cursor.begun, cursor.begun_within):
                self._begun |= self._logs_between(cursor.entry, cursor.entry + 1)
        yield True

    def read(self) -> Iterator[LogPiece]:
        """What follows the cursor, as much as one round takes; the cursor is moved behind each piece first."""
        count = self.files.arrivals.count(self.run_id)
        budget = _SEARCH_BYTES if self.query.grep else _ROUND_BYTES
        while self.cursor.entry < count and budget > 0 and not self.done:
            end = min(count, self.cursor.entry + _ENTRIES)
            for span in _spans(self.files.arrivals.read(self.run_id, self.cursor.entry, end), self.cursor.within):
                if not self._wants(span.log):
                    self._stand(self.cursor.entry, span, span.offset + span.length)
                    continue
                budget -= span.length - self.cursor.within
                yield from self._read_span(span)
                if budget <= 0 or self.done:
                    return

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read."""
        return not self.done and self.cursor.entry < self.files.arrivals.count(self.run_id)

    def ends(self) -> Iterator[LogPiece]:
        """The last lines that have no line break, where lines are requested: nothing will complete them."""
        if not self.query.by_line:
            return
        touched = None if self._begun is None else self._logs_between(self.cursor.begun, self.cursor.entry)
        for number, (log, length) in enumerate(self.files.arrivals.lengths(self.run_id).items()):
            if number < self.cursor.ends or self.done:
                continue
            self.cursor.ends = number + 1
            if self._wants(log) and (touched is None or log in touched):
                start = self._line_start(log, length)
                text = self._bytes(log, start, length)
                for begin, end in self._chosen(text):
                    yield LogPiece.of(log.attempt, log.stream, start + begin, text[begin:end])

    def _wants(self, log: Log) -> bool:
        query = self.query
        if query.attempt is not None and log.attempt != query.attempt:
            return False
        if query.from_attempt is not None and log.attempt < query.from_attempt:
            return False
        return query.rank is None or log in self.of_rank

    def _check_cursor(self, count: int) -> None:
        """Normalize a cursor whose offset spans several small entries."""
        cursor = self.cursor
        log: Log | None = None
        while cursor.within:
            found = self.files.arrivals.read(self.run_id, cursor.entry, cursor.entry + 1)
            if not found or log not in (None, found[0].log):
                break
            log = found[0].log
            if cursor.within < found[0].length:
                return
            cursor.entry, cursor.within = cursor.entry + 1, cursor.within - found[0].length
        if cursor.within or cursor.entry > count:
            raise errors.JobError(
                "the cursor is beyond what the run has printed",
                "Follow the run without a cursor, from its beginning.",
            )

    def _read_span(self, span: _Span) -> Iterator[LogPiece]:
        """The rest of a span, in pieces."""
        first, at, end = self.cursor.entry, span.offset + self.cursor.within, span.offset + span.length
        while at < end and not self.done:
            upto = min(end, at + PIECE_BYTES)
            for behind, piece in self._pieces(span.log, at, upto):
                self._stand(first, span, behind)
                yield piece
            if not self.done:
                self._stand(first, span, upto)
            at = upto

    def _stand(self, first: int, span: _Span, behind: int) -> None:
        """Move the cursor behind a byte of a span, whose first entry is given."""
        is_over = behind >= span.offset + span.length
        self.cursor.entry = first + span.entries if is_over else first
        self.cursor.within = 0 if is_over else behind - span.offset

    def _pieces(self, log: Log, at: int, upto: int) -> Iterator[tuple[int, LogPiece]]:
        """The requested pieces of a part of a log, each with the offset that it ends at."""
        if self.query.by_line:
            yield from self._whole_lines(log, at, upto)
            return
        start = at
        if self._begun is not None and log not in self._begun:
            # Reading began in the middle, but never in the middle of a line.
            self._begun.add(log)
            start = self._line_start(log, at)
        yield upto, LogPiece.of(log.attempt, log.stream, start, self._bytes(log, start, upto))

    def _whole_lines(self, log: Log, at: int, upto: int) -> Iterator[tuple[int, LogPiece]]:
        """The chosen lines that end between two offsets of a log."""
        start = self._starts.pop(log, None)
        if start is None:
            start = self._line_start(log, at)
        fresh = self._bytes(log, at, upto)
        last = fresh.rfind(b"\n")
        if last < 0 and upto - start <= LINE_MOST_BYTES:
            self._starts[log] = start
        else:
            ended = at + last + 1 if last >= 0 else upto
            self._starts[log] = ended
            text = self._bytes(log, start, at) + fresh[: ended - at]
            for begin, end in self._chosen(text):
                yield start + end, LogPiece.of(log.attempt, log.stream, start + begin, text[begin:end])

    def _chosen(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Ranges of whole lines that match, and whose numbers are requested."""
        if not text:
            return
        ranges = _joined(self.matcher.lines(text)) if self.matcher else [(0, len(text))]
        first = (self.query.first_line or 1) - 1
        last = None if self.query.head is None else first + self.query.head
        for begin, end in ranges:
            lines = _count(text, begin, end)
            before, self.cursor.lines = self.cursor.lines, self.cursor.lines + lines
            if last is not None and self.cursor.lines >= last:
                self.done = True
                end = _behind_line(text, begin, end, last - before)
            if before < first:
                begin = _behind_line(text, begin, end, first - before)
            if begin < end:
                yield begin, end
            if self.done:
                return

    def _find_tail(self, lines: int, count: int, least: int) -> Iterator[tuple[int, int] | None]:
        """The entry and offset where the last lines begin; yields None now and then while it searches."""
        left, seen, searched = lines, set[Log](), 0
        for number, arrival in self._backwards(count if lines else least, least):
            end = arrival.offset + arrival.length
            while end > arrival.offset:
                begin = max(arrival.offset, end - PIECE_BYTES)
                ends = self._line_ends(arrival.log, begin, end, arrival.log not in seen, left)
                seen.add(arrival.log)
                if len(ends) >= left:
                    yield number, ends[-left] - arrival.offset
                    return
                left -= len(ends)
                searched += end - begin
                end = begin
                if searched >= _SEARCH_BYTES:
                    searched = 0
                    yield None
        yield (count, 0) if not lines else (least, 0)

    def _line_ends(self, log: Log, begin: int, end: int, is_last: bool, most: int) -> list[int]:
        """Where lines of a piece of a log end, at least the last `most`; the log's last line may lack a line break."""
        data = self._bytes(log, begin, end)
        if self.matcher is not None:
            start = self._line_start(log, begin)
            text = self._bytes(log, start, begin) + data
            whole = len(text) if is_last else text.rfind(b"\n") + 1
            return [start + behind - 1 for _, behind in self.matcher.lines(text[:whole])]
        found = [] if not is_last or data.endswith(b"\n") else [end - 1]
        at = len(data)
        while len(found) < most and (at := data.rfind(b"\n", 0, at)) >= 0:
            found.append(begin + at)
        return found[::-1]

    def _backwards(self, count: int, least: int) -> Iterator[tuple[int, Arrival]]:
        """The wanted entries with their numbers, the last one first."""
        for end in range(count, least, -_ENTRIES):
            begin = max(least, end - _ENTRIES)
            batch = self.files.arrivals.read(self.run_id, begin, end)
            for number in range(len(batch) - 1, -1, -1):
                if self._wants(batch[number].log):
                    yield begin + number, batch[number]

    def _logs_between(self, begin: int, end: int) -> set[Log]:
        found: set[Log] = set()
        for at in range(begin, end, _ENTRIES):
            found |= {entry.log for entry in self.files.arrivals.read(self.run_id, at, min(end, at + _ENTRIES))}
        return found

    def _line_start(self, log: Log, offset: int) -> int:
        """Where the line at an offset begins."""
        for size in (_NEAR_BYTES, LINE_MOST_BYTES):
            begin = max(0, offset - size)
            at = self._bytes(log, begin, offset).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
        return begin

    def _bytes(self, log: Log, begin: int, end: int) -> bytes:
        if begin >= end:
            return b""
        data = self.files.streams.read(self.run_id, log.attempt, log.stream, begin, end - begin)
        if len(data) < end - begin:
            raise errors.NotFound(f"the run {self.run_id} was removed")
        return data


def _spans(entries: list[Arrival], within: int) -> Iterator[_Span]:
    """Consecutive small entries of one log, merged; the first may be partly read."""
    span: _Span | None = None
    for entry in entries:
        if span is not None and span.log == entry.log and span.length + entry.length <= PIECE_BYTES and not within:
            span = _Span(span.log, span.offset, span.length + entry.length, span.entries + 1)
            continue
        if span is not None:
            yield span
            within = 0
        span = _Span(entry.log, entry.offset, entry.length, 1)
    if span is not None:
        yield span


def _joined(lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Adjacent lines merged into one range."""
    found: list[tuple[int, int]] = []
    for begin, end in lines:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _count(text: bytes, begin: int, end: int) -> int:
    """How many lines; one without a line break counts."""
    return text.count(b"\n", begin, end) + (not text.endswith(b"\n", begin, end))


def _behind_line(text: bytes, begin: int, end: int, lines: int) -> int:
    """The offset behind so many lines."""
    at = begin
    for _ in range(lines):
        found = text.find(b"\n", at, end)
        if found < 0:
            return end
        at = found + 1
    return at
