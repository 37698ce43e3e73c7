"""How figures read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.text import ago, duration, folded, number, parse_duration, shorten, size, table, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0s"), (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m 00s"), (185, "3m 05s"),
     (7800, "2h 10m"), (4 * 86400 + 3600, "4d 1h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("1h30m", 5400), ("2d", 172800), ("1H", 3600), (" 5 ", 5),
     ("0", None), ("", None), ("h", None), ("1.5h", None), ("-5", None), ("5x", None), ("1h 30m", None), ("0h", None)],
)  # fmt: skip
def test_durations_as_people_type_them(text: str, seconds: int | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(86_400.0, "1d"), (43_200.0, "12h"), (5400.0, "90m"), (61.0, "61s")])
def test_default_durations_as_people_would_type_them(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
    assert parse_duration(text) == seconds


@given(st.text(max_size=8))
def test_no_text_breaks_the_parsing_of_durations(text: str) -> None:
    seconds = parse_duration(text)
    assert seconds is None or seconds > 0


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1.0 MB"), (102_500_000, "102 MB"), (5e15, "5.0 PB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (True, "True"),
        (2.31054, "2.311"),
        (12345.67, "12,345.7"),
        (2000.0, "2,000"),
        (1e-7, "1e-07"),
        ("NaN", "NaN"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        ([1], "[1]"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


def test_tables_stand_in_columns() -> None:
    assert table(("A", "B"), [("long", "x"), ("s", "")]) == ["A     B", "long  x", "s"]


def test_ages_and_shortening() -> None:
    assert ago(None, 10) == "-"
    assert ago(9.9, 10) == "now"
    assert ago(0, 12) == "12s ago"
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


def test_a_message_is_folded_at_its_words() -> None:
    hint = "  Looked in w; `muster workspaces` lists others, --workspace chooses one."
    text = f"\x1b[31merror:\x1b[0m there is no run 'nope'\n{hint}"
    assert folded(text, None) == text
    assert folded(text, 44).splitlines() == [
        "\x1b[31merror:\x1b[0m there is no run 'nope'",
        "  Looked in w; `muster workspaces` lists",
        "    others, --workspace chooses one.",
    ]
    assert folded(text, 28).splitlines()[2:5] == ["  Looked in w;", "    `muster workspaces`", "    lists others,"]


def test_a_line_to_paste_stays_one_line_and_a_long_word_whole() -> None:
    line = "  muster login https://gpu-1:8910 --fingerprint SHA256:lxwUthcvg9hx13pOMGShqUSlZ1c721wi"
    assert folded(line, 40) == line
    long = "see /a/folder/that/is/longer/than/the/whole/terminal/is"
    assert folded(long, 30).splitlines() == ["see", "  " + long.split()[1]]
    command = "try `muster run train.py --nodes 2 --procs 4 --name short` now"
    assert [line.strip() for line in folded(command, 30).splitlines()] == [
        "try `muster run train.py", "--nodes 2 --procs 4 --name", "short` now",
    ]  # fmt: skip


@pytest.mark.parametrize("room", range(20, 90, 7))
def test_nothing_is_lost_by_folding(room: int) -> None:
    text = "a notice: each rank runs `module load cuda` first; an `environment` in the job file starts faster, ` alone"
    parts = folded(text, room).splitlines()
    assert " ".join(part.strip() for part in parts) == text
    assert all(len(part) <= room for part in parts)
