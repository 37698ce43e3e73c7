"""The classes in their order: the number of a class is its position in the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from muster.errors import Conflict, JobError, NotFound

_SPLITS = ("train", "val")
_FILE = "classes.txt"


def path_in(out: Path) -> Path:
    """The file of the classes in a folder of shards."""
    return out / _FILE


def read(path: Path) -> tuple[str, ...]:
    """The first word of each line; what follows it describes the class."""
    seen: dict[str, int] = {}
    for line in read_lines(path, "list of classes", "one class in each line, such as the classes.txt of shards"):
        name = line.words[0]
        if name in seen:
            raise JobError(
                f"{path}:{line.number}: the class {name} is already in line {seen[name]}.",
                "The first word of each line is a class, and each class must be there once: remove one of the lines.",
            )
        seen[name] = line.number
    return tuple(seen)


def refuse_other_classes(out: Path, classes: Sequence[str], source: Path, hint: str) -> None:
    """All shards in a folder share one list of classes; otherwise their labels would not agree."""
    path = path_in(out)
    if not path.exists() or not any(any((out / split).glob("*.tar")) for split in _SPLITS):
        return
    for number, (there, here) in enumerate(zip_longest(read(path), classes)):
        if there != here:
            raise Conflict(
                f"{out} holds shards of other classes: class {number} is {there or 'none'} in {path}"
                f" and {here or 'none'} in {source}.",
                hint,
            )


@dataclass(frozen=True)
class Line:
    """A line of a list, and its number in the file, from 1."""

    number: int
    words: tuple[str, ...]


def read_lines(path: Path, what: str, form: str) -> list[Line]:
    """The lines that are not empty; `what` is the list's name in messages, `form` the expected form of a line."""
    try:
        # Some editors begin a text with a byte order mark, which is not part of the first word.
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
