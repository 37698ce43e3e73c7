"""Lists the files at a place, level by level, and finds what changes there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from muster.client.storage import Storage
from muster.client.transfer.access import explained
from muster.client.transfer.copying import find_stored, open_source
from muster.client.transfer.places import Place
from muster.errors import NotFound
from muster.storage.connectors.base import read_through
from muster.wire.data.access import FileEntry, FileList


@dataclass(frozen=True)
class Shown:
    """A file, or a folder with all that is below it."""

    name: str
    """A folder's ends in a slash."""
    size: int
    files: int = 1


@dataclass(frozen=True)
class Change:
    """A file that was added, changed or removed."""

    what: Literal["new", "changed", "gone"]
    path: str
    size: int


def entries_of(storage: Storage, place: Place) -> FileList:
    """Every file at a place, with its path relative to that; a place that is one file lists it by its name."""
    if place.kind != "store":
        with explained():
            return FileList(tuple(open_source(storage, place, ignore_files=False).entries))
    place, seen = find_stored(storage, place)
    found = seen.files
    one = FileEntry(place.name, found[0].size, etag=found[0].etag) if found and not found[0].path else None
    return seen if one is None else FileList((one,))


def level(entries: Iterable[FileEntry]) -> list[Shown]:
    """The first level: folders with what is below them, and files."""
    found: dict[str, Shown] = {}
    for entry in entries:
        first, slash, _ = entry.path.partition("/")
        name = first + slash
        known = found.get(name, Shown(name, 0, 0))
        found[name] = Shown(name, known.size + entry.size, known.files + 1)
    return [found[name] for name in sorted(found)]


def changes(before: Mapping[str, FileEntry], now: Mapping[str, FileEntry]) -> list[Change]:
    """The differences between two listings of a place."""
    found = [Change("new", path, now[path].size) for path in now.keys() - before.keys()]
    found += [Change("gone", path, before[path].size) for path in before.keys() - now.keys()]
    for path in now.keys() & before.keys():
        if (now[path].size, now[path].etag) != (before[path].size, before[path].etag):
            found.append(Change("changed", path, now[path].size))
    return sorted(found, key=lambda change: change.path)


@dataclass(frozen=True)
class Difference:
    """Two versions of a data asset, compared."""

    changes: tuple[Change, ...]
    same: int
    unknown: int = 0
    """Files of the same size of which a hash is missing: they count as the same."""


def difference(left: Iterable[FileEntry], right: Iterable[FileEntry]) -> Difference:
    """The changes from one list of files to another; by hashes where both are known."""
    before, now = ({entry.path: entry for entry in entries} for entries in (left, right))
    found = [Change("new", path, now[path].size) for path in now.keys() - before.keys()]
    found += [Change("gone", path, before[path].size) for path in before.keys() - now.keys()]
    same = unknown = 0
    for path in now.keys() & before.keys():
        old, new = before[path], now[path]
        is_known = old.sha256 is not None and new.sha256 is not None
        if old.size != new.size or (is_known and old.sha256 != new.sha256):
            found.append(Change("changed", path, new.size))
            continue
        same += 1
        unknown += not is_known
    return Difference(tuple(sorted(found, key=lambda change: change.path)), same, unknown)


def content(storage: Storage, place: Place) -> Iterator[bytes]:
    """The bytes of one file."""
    with explained():
        opened = open_source(storage, place, ignore_files=False)
        if not opened.one_file:
            raise NotFound(f"{place} is a folder.", f"Name one file of it: `muster data ls {place.text}` lists them.")
        entry = opened.entries[0]
        if opened.folder is not None:
            opened.folder.announce([entry.path])
        yield from read_through(opened.source, entry)
