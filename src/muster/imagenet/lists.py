"""Lists that the user gives: the words of each line that has some."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from muster.errors import JobError, NotFound


@dataclass(frozen=True)
class Line:
    """A line of a list, and its number in the file from 1."""

    number: int
    words: tuple[str, ...]


def read_lines(path: Path, what: str, form: str) -> list[Line]:
    """The lines that are not empty; `what` is the list's name in messages, `form` how it must look."""
    try:
        # Some editors begin a text with a mark, which is no part of the first word.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"there is no {what} {path}.", f"Give a text file of {form}.") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise JobError(f"the {what} {path} is no text file.", f"Give a text file of {form}.")
    lines = [Line(number, tuple(line.split())) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise JobError(f"the {what} {path} is empty.", f"Give a text file of {form}.")
    return lines
