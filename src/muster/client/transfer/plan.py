"""Decides what a copy does with each file, before it begins. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.client.transfer.places import Place
from muster.errors import Conflict
from muster.wire.data.access import FileEntry


@dataclass(frozen=True)
class Copy:
    """One file, and the name that it gets below the target's folder."""

    entry: FileEntry
    """Its path is relative to the source's folder."""
    name: str


@dataclass(frozen=True)
class Plan:
    """What is copied, what stays as it is, what is removed."""

    copies: tuple[Copy, ...]
    same: tuple[str, ...] = ()
    """There already, with this content."""
    removals: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(copy.entry.size for copy in self.copies)


@dataclass(frozen=True)
class Landing:
    """Where a source lands: the folder, and the file's name, if the source is one file."""

    folder: Place
    one_name: str | None = None

    def name_of(self, entry: FileEntry) -> str:
        return self.one_name or entry.path


def landing(source: Place, target: Place, *, one_file: bool, into_folder: bool) -> Landing:
    """As with `cp`: one file gets the target's name, or goes into a folder that exists or ends in a slash.

    The files of a folder go below the target, so that the same copy typed again means the same; with a slash at the
    target's end, below the source's name there.
    """
    if one_file and (into_folder or target.is_folder):
        return Landing(target, source.name)
    if one_file:
        return Landing(target.parent, target.name)
    named = target.is_folder and target.path not in ("", ".", "..") and target.text.endswith("/")
    return Landing(target.below(source.name) if named else target)


def decide(
    copies: Sequence[Copy],
    there: Mapping[str, FileEntry],
    identical: Callable[[Iterable[Copy]], set[str]],
    *,
    overwrite: bool,
    delete: bool = False,
    where: str = "the target",
) -> Plan:
    """Decide about each file. `identical` finds the ones with the same content among those there with the same size."""
    alike = [copy for copy in copies if copy.name in there and there[copy.name].size == copy.entry.size]
    same = identical(alike)
    wanted = [copy for copy in copies if copy.name not in same]
    taken = [copy.name for copy in wanted if copy.name in there]
    if taken and not overwrite:
        more = f", and {len(taken) - 1:,} more are" if len(taken) > 1 else " is"
        raise Conflict(
            f"{taken[0]} at {where}{more} there with another content.",
            "--overwrite replaces what differs; what is the same is skipped either way.",
        )
    names = {copy.name for copy in copies}
    removals = tuple(sorted(there.keys() - names)) if delete else ()
    return Plan(tuple(wanted), tuple(sorted(same)), removals)
