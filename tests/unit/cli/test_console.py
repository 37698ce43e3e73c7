"""What others wrote does not act on the terminal: names, tags, notes and messages are shown, with escapes."""

from __future__ import annotations

import io
import sys

import pytest
from tests.conftest import wait_until

from muster.cli import console
from muster.cli.console import Paint, print_lines, safe
from muster.cli.options import print_result
from muster.cli.text import table
from muster.wire.text import printable, storable

ATTACKS = {
    "\x1b[2J\x1b[Hgone": "\\x1b[2J\\x1b[Hgone",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x1b]52;c;cm0gLXJm\x07": "\\x1b]52;c;cm0gLXJm\\x07",
    "\x1b[8mhidden": "\\x1b[8mhidden",
    "over\rwritten": "over\\rwritten",
    "a\u202etxt.exe": "a\\u202etxt.exe",
    "\u2066a\u2069": "\\u2066a\\u2069",
    "a\u200bb": "a\\u200bb",
    "\x9b31m": "\\x9b31m",
    "a\u2028b": "a\\u2028b",
    "half \ud800": "half \\ud800",
}


@pytest.mark.parametrize(("name", "shown"), ATTACKS.items(), ids=ascii)
def test_names_are_shown_and_do_not_act(name: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    paint = Paint(color=True)
    print_lines(table(("NAME", "STATE"), [(name, paint("Running", "cyan"))]))
    said = capsys.readouterr().out
    assert shown in said
    assert paint("Running", "cyan") in said, "our own colours stay"
    assert {char for char in said if not char.isprintable()} <= {"\n", "\x1b"}
    assert said.count("\x1b") == 2
    print_result(name, [name], as_json=False)
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize("text", ["plain", "größer 日本 🧑‍🚀 é", "two\nlines\tand a tab", "\x1b[31mred\x1b[0m"])
def test_everything_else_is_shown_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_a_line_break_is_none_in_a_name() -> None:
    assert printable("a\nb") == "a\\nb"
    assert storable("\ud83d\ude00 \ud800\0") == "\U0001f600 \ufffd\ufffd"


class Screen(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_what_it_is_and_takes_that_back(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(console, "PATIENCE_S", 0.01)
    monkeypatch.setenv("COLUMNS", "30")
    with console.patience("removing train-c2b3c4d5: 4.2 GB of outputs"):
        wait_until(lambda: screen.getvalue(), 20.0, "the line")
    assert "\r\x1b[Kremoving train-c2b3c4d5: 4.2…" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_or_goes_to_a_pipe_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen in (Screen(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", screen)
        with console.patience("starting the server"):
            pass
        assert not screen.getvalue()
