"""Capabilities of the terminal, and the few colours that Muster uses."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from muster.cli.text import duration, folded, shorten
from muster.wire.text import printable

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
PATIENCE_S = 2.0
_COLOR = re.compile(r"(\x1b\[(?:0|[12]|3[1-6]|9[0-7])(?:;(?:[12]|3[1-6]))*m)")
"""A colour sequence as `Paint` writes it."""
_RANK_COLORS = ("36", "35", "33", "32", "34", "96", "95", "93", "92", "94")


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which lines can be redrawn."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def columns(stream: TextIO) -> int | None:
    """The width of a terminal; None where nothing wraps, such as in a pipe."""
    if not is_terminal(stream):
        return None
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdecimal() and int(given) else os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def color_wanted(terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether to colour, after NO_COLOR, CLICOLOR_FORCE and CLICOLOR."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return terminal and environment.get("CLICOLOR") != "0"


class Paint:
    """Colours text, or leaves it alone where colour is not wanted."""

    def __init__(self, color: bool) -> None:
        self.color = color

    @classmethod
    def of(cls, stream: TextIO) -> Paint:
        return cls(color_wanted(is_terminal(stream), os.environ))

    def __call__(self, text: str, *styles: str) -> str:
        if not self.color or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def rank(self, label: str, number: int) -> str:
        """The prefix of one rank's lines, in a colour of its own."""
        if not self.color:
            return label
        return f"\x1b[{_RANK_COLORS[number % len(_RANK_COLORS)]}m{label}\x1b[0m"

    def status(self, status: str) -> str:
        styles = {"Completed": "green", "Failed": "red", "Canceled": "yellow", "Running": "cyan"}
        return self(status, styles[status]) if status in styles else status


def safe(text: str) -> str:
    """Lines for a terminal: text of others may have colours, but cannot move, erase, hide or reverse anything."""
    if text.isprintable():
        return text
    return "".join(part if _COLOR.fullmatch(part) else printable(part, lines=True) for part in _COLOR.split(text))


def print_lines(lines: Iterable[str], file: TextIO | None = None) -> None:
    """Print lines that may contain names, notes or messages of others."""
    print(safe("\n".join(lines)), file=file or sys.stdout, flush=True)


@contextmanager
def patience(text: str) -> Iterator[None]:
    """Show on a terminal what is waited for, and for how long, once it takes longer than two seconds."""
    if not is_terminal(sys.stderr):
        yield
        return
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        pause_s = PATIENCE_S
        while not ended.wait(pause_s):
            pause_s = 1.0
            line = f"{text}  {duration(time.monotonic() - began)}"
            # A wrapped line cannot be overwritten by the next one.
            sys.stderr.write(f"\r\x1b[K{shorten(safe(line), (columns(sys.stderr) or 80) - 1)}")
            sys.stderr.flush()

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        ended.set()
        telling.join()
        if time.monotonic() - began > PATIENCE_S:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def say(text: str) -> None:
    """A message on standard error, apart from the command's output."""
    print(safe(folded(text, columns(sys.stderr))), file=sys.stderr, flush=True)


def notice(text: str) -> None:
    paint = Paint.of(sys.stderr)
    say(f"{paint('notice:', 'yellow')} {text}")
