"""The classes in their order: the number of a class is its place in the list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from muster.errors import Conflict, JobError
from muster.imagenet.lists import read_lines

_SPLITS = ("train", "val")
_FILE = "classes.txt"


def path_in(out: Path) -> Path:
    """Where the classes of the shards in a folder are."""
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


def refuse_others(out: Path, classes: Sequence[str], source: Path, hint: str) -> None:
    """The shards in a folder share one list of classes: their labels would not agree otherwise."""
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
