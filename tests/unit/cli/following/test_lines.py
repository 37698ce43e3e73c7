"""Bytes of many ranks become whole lines, however they arrive."""

import itertools
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.following.lines import Line, Merger, clean


def texts(merger: Merger, *chunks: bytes) -> list[str]:
    lines = [line.text for chunk in chunks for line in merger.feed("a", chunk)]
    return lines + [line.text for line in merger.finish()]


def test_a_line_is_given_out_when_it_is_finished() -> None:
    merger = Merger()
    assert merger.feed("a", b"one\ntw") == [Line("a", "one")]
    assert merger.feed("a", b"o\n") == [Line("a", "two")]
    assert merger.finish() == []


def test_lines_of_two_sources_do_not_mix() -> None:
    merger = Merger()
    assert merger.feed("a", b"from ") == []
    assert merger.feed("b", b"from b\n") == [Line("b", "from b")]
    assert merger.feed("a", b"a\n") == [Line("a", "from a")]


def test_what_lacks_a_newline_at_the_end_becomes_a_line() -> None:
    assert texts(Merger(), b"one\nno newline") == ["one", "no newline"]


def test_empty_lines_stay() -> None:
    assert texts(Merger(), b"\n\na\n\n") == ["", "", "a", ""]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"\r 10%\r 20%\r100%\n", ["100%"]),
        (b"10%\r20%\r\n", ["20%"]),
        (b"windows\r\nlines\r\n", ["windows", "lines"]),
        (b"50%\r     \rdone\n", ["done"]),
        (b"50%\r", ["50%"]),
        (b"\r\r\r\n", [""]),
        (b"a\rb\nc\rd", ["b", "d"]),
    ],
)
def test_only_the_last_state_of_a_line_written_again_and_again_is_shown(printed: bytes, shown: list[str]) -> None:
    assert texts(Merger(), printed) == shown
    assert texts(Merger(), *(printed[i : i + 1] for i in range(len(printed)))) == shown


def test_the_state_of_a_progress_bar_can_be_asked_for() -> None:
    merger = Merger()
    merger.feed("a", b"epoch 1\n\r 10%")
    merger.feed("b", b"\r 20%\r 30%")
    merger.feed("c", b"\r    ")
    assert merger.pending() == {"a": " 10%", "b": " 30%"}
    merger.feed("a", b"\n")
    assert merger.pending() == {"b": " 30%"}


def test_a_character_cut_between_chunks_is_whole_again() -> None:
    merger = Merger()
    first, second = "grün\n".encode()[:3], "grün\n".encode()[3:]
    assert merger.feed("a", first) == []
    assert merger.pending() == {"a": "gr"}
    assert merger.feed("a", second) == [Line("a", "grün")]


def test_what_is_not_utf8_is_replaced() -> None:
    assert texts(Merger(), b"\xff\xfe ok\n") == ["\ufffd\ufffd ok"]


def test_colours_stay_where_wanted_and_end_with_the_line() -> None:
    assert texts(Merger(color=True), b"\x1b[31mred\nplain\n") == ["\x1b[31mred\x1b[0m", "plain"]
    assert texts(Merger(color=True), b"\x1b[1;32mok\x1b[0m\n") == ["\x1b[1;32mok\x1b[0m"]
    assert texts(Merger(color=False), b"\x1b[31mred\x1b[0m\n") == ["red"]


@pytest.mark.parametrize(
    "escape",
    [
        b"\x1b[2K",
        b"\x1b[1A",
        b"\x1b[?25l",
        b"\x1b]0;title\x07",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1b(B",
        b"\x1bM",
        b"\x07",
        b"\x08",
    ],
)
@pytest.mark.parametrize("color", [True, False])
def test_codes_that_move_the_cursor_or_talk_to_the_terminal_never_pass(escape: bytes, color: bool) -> None:
    assert texts(Merger(color=color), b"a" + escape + b"b\n") == ["ab"]


def test_an_escape_cut_at_the_end_of_the_output_does_not_pass() -> None:
    for cut in (b"\x1b", b"\x1b[", b"\x1b[3", b"\x1b[31;"):
        assert texts(Merger(color=True), b"text" + cut) == ["text"]


def test_a_line_of_fifty_megabytes_is_passed_on_in_pieces_without_holding_it() -> None:
    merger = Merger(max_line_bytes=1000)
    chunk = b"x" * 100_000
    total = 0
    tracemalloc.start()
    for _ in range(500):
        total += sum(len(line.text) for line in merger.feed("a", chunk))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    total += sum(len(line.text) for line in merger.finish())
    assert total == 50_000_000
    assert held < 1_000_000


def test_a_long_line_is_not_cut_inside_a_character_or_a_colour() -> None:
    merger = Merger(color=True, max_line_bytes=10)
    lines = texts(merger, "ééééééééé\n".encode())
    assert "".join(lines) == "é" * 9
    assert all("\ufffd" not in line for line in lines)
    lines = texts(Merger(max_line_bytes=10), b"1234567\x1b[31m890\n")
    assert "".join(lines) == "1234567890"


pieces = st.lists(
    st.sampled_from(
        [b"a", b"bc ", b"\n", b"\r", b"\r\n", "é€😀".encode(), b"\xff", b"\x1b[31m", b"\x1b[0m", b"\x1b[2K", b"\t"]
    )
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


@given(pieces, st.lists(st.integers(0, 200)), st.booleans())
def test_how_the_bytes_are_cut_makes_no_difference(printed: bytes, cuts: list[int], color: bool) -> None:
    edges = [0, *sorted(min(cut, len(printed)) for cut in cuts), len(printed)]
    chunks = [printed[a:b] for a, b in itertools.pairwise(edges)]
    assert texts(Merger(color), *chunks) == texts(Merger(color), printed)


@given(pieces, st.booleans())
def test_shown_text_holds_no_control_character_but_tabs_and_colours(printed: bytes, color: bool) -> None:
    for line in texts(Merger(color), printed):
        rest = line
        if color:
            rest = "".join(part for part in _without_colors(line))
        assert all(char.isprintable() or char == "\t" or ord(char) >= 0xA0 for char in rest), repr(line)


def _without_colors(line: str) -> list[str]:
    return re.split(r"\x1b\[[0-9;:]*m", line)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["C"]), max_size=30), max_size=20))
def test_ordinary_lines_come_out_as_they_went_in(lines: list[str]) -> None:
    assert texts(Merger(), "".join(f"{line}\n" for line in lines).encode()) == lines


@given(st.dictionaries(st.sampled_from("abcd"), pieces), st.randoms(use_true_random=False))
def test_each_source_gets_the_lines_that_it_would_get_alone(printed: dict[str, bytes], random) -> None:  # type: ignore[no-untyped-def]
    merger, alone = Merger(), {source: texts(Merger(), data) for source, data in printed.items()}
    turns = [(source, i) for source, data in printed.items() for i in range(len(data))]
    random.shuffle(turns)
    positions = dict.fromkeys(printed, 0)
    got: dict[str, list[str]] = {source: [] for source in printed}
    for source, _ in turns:
        at = positions[source]
        positions[source] += 1
        for line in merger.feed(source, printed[source][at : at + 1]):
            got[line.source].append(line.text)
    for line in merger.finish():
        got[line.source].append(line.text)
    assert got == alone


@given(st.binary(max_size=300), st.integers(1, 20), st.booleans())
def test_no_bound_on_length_breaks_it(printed: bytes, bound: int, color: bool) -> None:
    merger = Merger(color, max_line_bytes=bound)
    for i in range(0, len(printed), 7):
        merger.feed("a", printed[i : i + 7])
        merger.pending()
    merger.finish()


def test_cleaning_leaves_ordinary_text_alone() -> None:
    assert clean("a\tb é", color=False) == "a\tb é"


def test_a_bar_that_grows_is_shown_now_and_then_where_nothing_else_shows_it() -> None:
    now = [0.0]
    merger = Merger(growing_s=2.0, clock=lambda: now[0])
    shown = []
    for step in range(6):
        now[0] = float(step)
        shown += [line.text for line in merger.feed("a", b"\r%d of 9" % step)]
    assert shown == ["0 of 9", "2 of 9", "4 of 9"]
    assert [line.text for line in merger.feed("a", b"\r9 of 9\nend\n")] == ["9 of 9", "end"]
    assert merger.feed("b", b"no return") == []
