"""Reading logs in the order in which they came: whole, resumed anywhere, by their ends, by lines, by pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import JobError
from muster.server.data.state import WorkspaceFiles
from muster.server.logs import reader as reading
from muster.server.logs.cursor import Cursor
from muster.server.logs.matching import Matcher
from muster.server.logs.reader import LogReader
from muster.store.arrivals import Log
from muster.store.backend import Store
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams
from muster.wire.node.agents import Chunk
from muster.wire.stream import LogPiece, LogQuery

RUN = "r"
Write = tuple[int, bytes]


def name_of(rank: int) -> str:
    return f"user_logs/std_log_process_{rank}.txt"


@contextmanager
def printed(writes: list[Write]) -> Iterator[WorkspaceFiles]:
    with TemporaryDirectory() as folder:
        store = Store(folder)
        files = WorkspaceFiles(store, Snapshots(store), Streams(Path(folder) / "runs"))
        for rank, data in writes:
            write(files, rank, data)
        yield files


def write(files: WorkspaceFiles, rank: int, data: bytes, indexed: bool = True) -> None:
    offset = files.streams.length(RUN, 1, name_of(rank))
    files.streams.append([Chunk(RUN, 1, name_of(rank), offset, data)])
    if indexed:
        files.arrivals.record(RUN, {Log(1, name_of(rank)): offset + len(data)})


def opened(files: WorkspaceFiles, query: LogQuery, cursor: Cursor | None = None) -> LogReader:
    matcher = Matcher(query.grep) if query.grep else None
    reader = LogReader(files, RUN, query, cursor or Cursor(), matcher, frozenset({Log(1, name_of(query.rank or 0))}))
    assert list(reader.begin())[-1]
    return reader


def pieces(files: WorkspaceFiles, query: LogQuery, breaks: set[int] = frozenset()) -> list[LogPiece]:  # type: ignore[assignment]
    """All that a query gives, by a reader that begins anew from its cursor after the pieces with these numbers."""
    found: list[LogPiece] = []
    cursor = Cursor()
    while True:
        reader = opened(files, query, cursor)
        try:
            cursor, is_over = read_to_break(reader, found, breaks)
        finally:
            reader.close()
        if is_over:
            return found


def read_to_break(reader: LogReader, found: list[LogPiece], breaks: set[int]) -> tuple[Cursor, bool]:
    while reader.is_behind:
        for piece in reader.read():
            found.append(piece)
            if len(found) - 1 in breaks:
                # What goes over the line is text.
                return Cursor.decode(reader.cursor.encode()), False
    for piece in reader.ends():
        found.append(piece)
        if len(found) - 1 in breaks:
            return Cursor.decode(reader.cursor.encode()), False
    return reader.cursor, True


def by_rank(found: list[LogPiece]) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for piece in found:
        texts[piece.stream] = texts.get(piece.stream, b"") + piece.data
    return texts


def lines_in_order(writes: list[Write]) -> list[tuple[int, bytes]]:
    """Every line in the order in which lines ended; those that did not end come last, in the order of their logs."""
    lines: list[tuple[int, bytes]] = []
    rest: dict[int, bytes] = {}
    for rank, data in writes:
        *ended, rest[rank] = (rest.get(rank, b"") + data).split(b"\n")
        lines += [(rank, line) for line in ended]
    return lines + [(rank, line) for rank, line in rest.items() if line]


def lines_of(found: list[LogPiece]) -> list[tuple[int, bytes]]:
    number = re.compile(r"process_(\d+)")
    return [
        (int(number.search(piece.stream)[1]), line)  # type: ignore[index]
        for piece in found
        for line in piece.data.removesuffix(b"\n").split(b"\n")
    ]


WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.binary(min_size=1).map(lambda d: d.replace(b"\x00", b"\n"))), max_size=12
)
BREAKS = st.sets(st.integers(0, 20))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 7)
    monkeypatch.setattr(reading, "_ENTRIES", 3)
    monkeypatch.setattr(reading, "_ROUND_BYTES", 20)


@settings(max_examples=30, deadline=None)
@given(WRITES, BREAKS)
def test_wherever_a_follower_breaks_off_it_gets_every_byte_once(writes: list[Write], breaks: set[int]) -> None:
    with printed(writes) as files:
        expected: dict[str, bytes] = {}
        for rank, data in writes:
            expected[name_of(rank)] = expected.get(name_of(rank), b"") + data
        assert by_rank(pieces(files, LogQuery(), breaks)) == expected


@settings(max_examples=30, deadline=None)
@given(WRITES, BREAKS, st.integers(0, 6))
def test_a_tail_is_the_last_lines_whole_and_goes_on_exactly(writes: list[Write], breaks: set[int], count: int) -> None:
    whole = [*writes, *((rank, b"\n") for rank in sorted({rank for rank, _ in writes}))]
    with printed(whole) as files:
        found = pieces(files, LogQuery(tail=count), breaks)
        expected = lines_in_order(whole)
        for name, text in by_rank(found).items():
            rank = int(re.search(r"_(\d+)\.", name)[1])  # type: ignore[index]
            mine = [line for other, line in expected[max(0, len(expected) - count) :] if other == rank]
            assert text.removesuffix(b"\n").split(b"\n") == mine
        assert sum(piece.data.count(b"\n") for piece in found) == min(count, len(expected))


@settings(max_examples=25, deadline=None)
@given(WRITES, BREAKS)
def test_lines_that_match_come_in_order_and_once(writes: list[Write], breaks: set[int]) -> None:
    pattern = r"[a-f]|1\s*2"
    with printed(writes) as files:
        expected = [item for item in lines_in_order(writes) if re.search(pattern.encode(), item[1])]
        found = lines_of(pieces(files, LogQuery(grep=pattern), breaks))
        assert found == expected


@settings(max_examples=25, deadline=None)
@given(WRITES, BREAKS, st.integers(1, 5), st.integers(1, 5))
def test_lines_by_number(writes: list[Write], breaks: set[int], first: int, count: int) -> None:
    with printed(writes) as files:
        found = lines_of(pieces(files, LogQuery(first_line=first, head=count), breaks))
        assert found == lines_in_order(writes)[first - 1 :][:count]


def test_the_last_lines_that_match() -> None:
    with printed([(0, b"a1\nb\na2\n"), (1, b"a3\nc\n"), (0, b"d\na4")]) as files:
        assert lines_of(pieces(files, LogQuery(grep="a", tail=3))) == [(0, b"a2"), (1, b"a3"), (0, b"a4")]


def test_a_tail_begins_at_the_beginning_of_a_line_that_came_in_parts() -> None:
    with printed([(0, b"one\ntw"), (1, b"x\n"), (0, b"o\nthr")]) as files:
        assert by_rank(pieces(files, LogQuery(tail=2))) == {name_of(0): b"two\nthr"}
        assert by_rank(pieces(files, LogQuery(tail=3))) == {name_of(0): b"two\nthr", name_of(1): b"x\n"}


def test_one_rank_alone() -> None:
    with printed([(0, b"a\n"), (1, b"b\n"), (0, b"c\n")]) as files:
        assert by_rank(pieces(files, LogQuery(rank=0, tail=5))) == {name_of(0): b"a\nc\n"}


def test_since_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with printed([]) as files:
        for at, data in ((100.0, b"old\nne"), (200.0, b"w\n"), (50.0, b"clock set back\n")):
            monkeypatch.setattr("muster.store.arrivals.time.time", lambda at=at: at)
            write(files, 0, data)
        assert by_rank(pieces(files, LogQuery(since=150.0))) == {name_of(0): b"new\nclock set back\n"}
        assert pieces(files, LogQuery(since=201.0)) == []


def test_what_the_index_missed_is_made_up_for() -> None:
    with printed([(0, b"a")]) as files:
        write(files, 0, b"b", indexed=False)
        write(files, 1, b"c", indexed=False)
        files.arrivals.catch_up(RUN, [1])
        files.arrivals.catch_up(RUN, [1])
        assert by_rank(pieces(files, LogQuery())) == {name_of(0): b"ab", name_of(1): b"c"}


@pytest.mark.parametrize("damage", [b"\x00" * 40, b"\x00" * 28, b"x" * 5])
def test_an_index_that_a_crash_left_unfinished_is_used_as_far_as_it_goes(damage: bytes) -> None:
    with printed([(0, b"a\n"), (1, b"b\n")]) as files:
        with (files.streams.folder(RUN) / "arrivals").open("ab") as file:
            file.write(damage)
        with (files.streams.folder(RUN) / "arrivals.names").open("ab") as file:
            file.write(b"[1, ")
        again = WorkspaceFiles(files.store, files.snapshots, files.streams)
        write(again, 2, b"c\n")
        assert by_rank(pieces(again, LogQuery())) == {name_of(0): b"a\n", name_of(1): b"b\n", name_of(2): b"c\n"}


def test_a_cursor_stays_small_with_a_thousand_ranks() -> None:
    with printed([]) as files:
        files.streams.append([Chunk(RUN, 1, name_of(rank), 0, b"line\n") for rank in range(1000)])
        files.arrivals.catch_up(RUN, [1])
        reader = opened(files, LogQuery())
        while reader.is_behind:
            assert all(len(reader.cursor.encode()) < 100 for _ in reader.read())


@pytest.mark.parametrize("cursor", [Cursor(entry=2), Cursor(entry=1, within=9), Cursor(within=5), Cursor(entry=2**62)])
def test_a_cursor_beyond_the_end_is_refused(cursor: Cursor) -> None:
    with printed([(0, b"ab")]) as files, pytest.raises(JobError, match="beyond"):
        opened(files, LogQuery(), replace(cursor))


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(JobError, match="not a regular expression"):
        Matcher("a(")


def test_a_pattern_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher("(a+)+$")
    # Not before: the matcher's own start may take as long on a crowded machine.
    monkeypatch.setattr("muster.server.logs.matching._BLOCK_MOST_S", 0.2)
    try:
        with pytest.raises(JobError, match="takes too long"):
            matcher.lines(b"a" * 40 + b"b\n")
    finally:
        matcher.close()
