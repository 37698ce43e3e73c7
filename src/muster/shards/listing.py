"""The samples of a folder of files: listed folder by folder and kept compactly, so that a million names fit in memory.

Files of one folder whose names differ only in what follows the last dot are one sample. A name takes its own bytes and
16 more; apart from that, only the entries of one folder at a time are in memory.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from muster.errors import JobError, NotFound

_SAME = {"jpeg": "jpg", "jpe": "jpg"}
_BETWEEN = b"\0"
_LONGEST_SUFFIX = 32
"""A longer one is part of the name."""


class Part(NamedTuple):
    """One file of a sample."""

    field: str
    path: str
    """Relative to the folder."""


@dataclass(frozen=True)
class Names:
    """The samples of a folder, in the order of their names."""

    _text: bytearray
    """For each sample: its key, and what follows the last dot in each of its files."""
    _ends: array[int]
    _labels: array[int]
    classes: tuple[str, ...]
    """The top-level folders, in the order of their names; empty if samples also lie next to them."""
    beside: int = 0
    """How many samples lie next to those folders; if any do, no sample has a label."""
    first_beside: str = ""

    def __len__(self) -> int:
        return len(self._ends)

    def key(self, number: int) -> str:
        """Its path without what follows the last dot."""
        return os.fsdecode(self._entry(number)[0])

    def parts(self, number: int) -> tuple[Part, ...]:
        key, *suffixes = self._entry(number)
        return tuple(Part(field_of(suffix), os.fsdecode(key + b"." + suffix if suffix else key)) for suffix in suffixes)

    def label(self, number: int) -> int | None:
        """The number of its class."""
        return self._labels[number] if self.classes else None

    def digest(self) -> bytes:
        """The hash of all names."""
        return hashlib.sha256(self._text).digest() + hashlib.sha256(self._ends.tobytes()).digest()

    @property
    def memory(self) -> int:
        """Bytes that the names take."""
        return len(self._text) + self._ends.itemsize * len(self._ends) + self._labels.itemsize * len(self._labels)

    def _entry(self, number: int) -> Sequence[bytes]:
        begin = self._ends[number - 1] if number else 0
        return bytes(self._text[begin : self._ends[number]]).split(_BETWEEN)


def field_of(suffix: bytes) -> str:
    """The part's name: in lower case, `jpg` for JPEG under any of its names, `bin` where there is no dot."""
    name = os.fsdecode(suffix).lower() or "bin"
    return _SAME.get(name, name)


def listed(folder: Path) -> Names:
    """Every sample below the folder; hidden files and folders are left out."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}.", "Give the path of a folder with the files of the data set.")
    text, ends, labels = bytearray(), array("q"), array("q")
    classes: list[str] = []
    loose, first = 0, ""
    for inside, names in _folders(os.fsencode(folder)):
        top = inside.partition(b"/")[0]
        if top and (not classes or classes[-1] != os.fsdecode(top)):
            classes.append(os.fsdecode(top))
        for stem, suffixes in _samples(names):
            if len({*map(field_of, suffixes)}) < len(suffixes):
                raise JobError(
                    f"{os.fsdecode(os.path.join(os.fsencode(folder), inside, stem))} stands for several files that are "  # noqa: PTH118
                    f"the same part of a sample ({', '.join(map(os.fsdecode, suffixes))}).",
                    "Rename all but one of them.",
                )
            if not top:
                first = first or os.fsdecode(stem + b"." + suffixes[0] if suffixes[0] else stem)
                loose += 1
            text += _BETWEEN.join([inside + b"/" + stem if inside else stem, *suffixes])
            ends.append(len(text))
            labels.append(len(classes) - 1)
    if not ends:
        raise JobError(f"{folder} holds no files.", "Give the folder that the files of the data set lie in.")
    return Names(text, ends, labels, () if loose else tuple(classes), loose if classes else 0, first)


def _folders(root: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each folder that has files, with their names, in the order of the folders' names."""
    waiting = [b""]
    linked = set()
    while waiting:
        inside = waiting.pop()
        below, names = [], []
        with os.scandir(os.path.join(root, inside) if inside else root) as entries:  # noqa: PTH118
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                if entry.is_dir():
                    if entry.is_symlink():
                        # A link to a folder is followed once, since it may lead back to where it lies.
                        if (found := entry.stat()).st_ino in linked:
                            continue
                        linked.add(found.st_ino)
                    below.append(inside + b"/" + entry.name if inside else entry.name)
                elif entry.is_file():
                    names.append(entry.name)
        # The last one is the next to be taken.
        waiting += sorted(below, reverse=True)
        if names:
            yield inside, names


def _samples(names: list[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    for stem, files in groupby(sorted(map(_split, names)), key=lambda item: item[0]):
        yield stem, [suffix for _, suffix in files]


def _split(name: bytes) -> tuple[bytes, bytes]:
    stem, _, suffix = name.rpartition(b".")
    return (stem, suffix) if stem and 0 < len(suffix) <= _LONGEST_SUFFIX else (name, b"")
