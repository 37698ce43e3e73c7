"""Copying: both ends are opened, everything is decided, then bytes move, in parallel and verified."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from muster.client.storage import Storage
from muster.client.transfer import local
from muster.client.transfer.access import OpenFolder, asset_source, batches, elsewhere, explained, hash_here
from muster.client.transfer.fetching import fetch_all
from muster.client.transfer.places import HINT, Place, literal, parse_place
from muster.client.transfer.plan import Copy, Landing, Plan, decide, landing
from muster.errors import Conflict, DiskFull, JobError, NotFound, UserError
from muster.host.hashing import measure
from muster.storage.addresses import joined
from muster.storage.connectors.base import Sink, Source, SourceChanged, TransferError, files_at
from muster.storage.connectors.files import Folder
from muster.storage.connectors.filesystems import Filesystem
from muster.storage.staging.download import Damaged
from muster.storage.staging.model import check_entries
from muster.wire.data.access import FileEntry, FileList
from muster.wire.text import size

_SMALL_BYTES = 1 << 20
_SMALL_AT_ONCE = 16
"""Each waits for its answer most of the time."""
_LARGE_AT_ONCE = 4
_SPOOL_BYTES = 1 << 30
"""The most that is kept here at once while copying between two storages."""
T = TypeVar("T")


class Watch(Protocol):
    """Follows a copy."""

    def begin(self, name: str) -> None:
        """Name the current step."""

    def expect(self, total: int) -> None:
        """Set how many bytes will come."""

    def add(self, count: int) -> None:
        """Count bytes that have come."""


@dataclass(frozen=True)
class Choices:
    """How a copy is to be made."""

    overwrite: bool = False
    ignore_files: bool = True
    delete: bool = False
    """Remove at the target what the source does not have."""
    folders: bool = False
    """The source must be a folder."""


@dataclass(frozen=True)
class Opened:
    """A source: its files by their paths below a folder."""

    place: Place
    source: Source
    entries: Sequence[FileEntry]
    one_file: bool = False
    folder: OpenFolder | None = None
    """Its folder, if it is in a datastore."""
    found: local.Found = field(default_factory=local.Found)
    """Its files on this machine, and what was left out."""


@dataclass(frozen=True)
class Prepared:
    """A copy that is planned but not begun."""

    opened: Opened
    landing: Landing
    sink: Sink
    plan: Plan
    folder: OpenFolder | None = None
    """The target's folder, if it is in a datastore."""

    @property
    def label(self) -> str:
        """The target, for messages."""
        one = self.landing.one_name
        return str(self.landing.folder.below(one) if one else self.landing.folder)


def prepare(storage: Storage, source: str, target: str, choices: Choices, watch: Watch) -> Prepared:
    """Open both ends and decide about every file; nothing is moved. Raises Conflict for files in the way."""
    start, end = parse_place(source), parse_place(target)
    if {start.kind, end.kind} == {"local"}:
        raise UserError(f"{source} and {target} are both on this machine.", f"Use cp. {HINT}")
    with explained():
        opened = open_source(storage, start, choices.ignore_files)
        if choices.folders and opened.one_file:
            raise UserError(f"{source} is a file, and sync is for folders.", "`muster data cp` copies one file.")
        return _prepared(storage, opened, end, choices, watch)


def carry_out(prepared: Prepared, storage: Storage, watch: Watch) -> None:
    """Copy, then remove, as planned; repeated after an interruption, it continues."""
    plan = prepared.plan
    watch.expect(plan.size)
    with explained():
        try:
            _move(prepared, watch)
        except (SourceChanged, Damaged) as error:
            place = prepared.opened.place
            if place.kind != "asset":
                raise
            raise Conflict(
                f"{error.what} of the data asset {place.store}:{place.version} has changed since the asset was made.",
                "Something wrote to its place: make a new version, or restore the old content there.",
            ) from error
        if plan.removals:
            remove(storage, prepared.landing.folder, plan.removals)


def _move(prepared: Prepared, watch: Watch) -> None:
    if prepared.landing.folder.kind == "local":
        _fetch(prepared, watch)
        return
    _check_room(prepared)
    if prepared.opened.place.kind == "local":
        _send(prepared, prepared.plan.copies, prepared.opened.source, watch)
    else:
        _through_here(prepared, watch)


def _check_room(prepared: Prepared) -> None:
    """Refuse a copy that does not fit a datastore in a folder of this machine, before anything is sent."""
    sink, needed = prepared.sink, prepared.plan.size
    if not isinstance(sink, Folder):
        return
    there = next(folder for folder in (sink.root, *sink.root.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DiskFull(
            f"{size(needed)} are to be sent, and the disk of {prepared.landing.folder} has {size(free)} free.",
            "Free some space there, or choose another datastore.",
        )


def open_source(storage: Storage, place: Place, ignore_files: bool = True) -> Opened:
    """Open the source at a place; raises NotFound if nothing is there."""
    if place.kind == "local":
        root = Path(place.path)
        found = local.find(root, ignore_files)
        local.check_names(entry.path for entry in found.files)
        is_file = root.is_file()
        return Opened(place, Folder(str(root.parent if is_file else root)), found.files, is_file, found=found)
    if place.kind == "store":
        return _stored(storage, place)
    if place.kind == "asset":
        return _asset(storage, place)
    source = elsewhere(place)
    entries = check_entries(files_at(source), place.text)
    if not entries:
        raise NotFound(f"{place.text}: there is no file or folder.", "Check the address; case matters.")
    return Opened(place, source, entries, not entries[0].path)


def find_stored(storage: Storage, place: Place) -> tuple[Place, FileList]:
    """A path of a datastore and its files; an address with literal % signs is understood, too."""
    found = storage.listing(place.store, place.path)
    other = literal(place) if not found.files else None
    if other is not None:
        place, found = other, storage.listing(other.store, other.path)
    if not found.files and place.path:
        hint = "It is a link that leads out of the datastore." if found.left_out else "Check the path; case matters."
        raise NotFound(f"{place}: there is no file or folder.", hint)
    return place, found


def _stored(storage: Storage, place: Place) -> Opened:
    place, seen = find_stored(storage, place)
    listed = seen.files
    if not listed:
        raise NotFound(f"{place}: there is no file.", "Check the name of the datastore.")
    is_file = not listed[0].path
    folder = OpenFolder(storage, place.parent if is_file else place, "read")
    entries = check_entries([replace(listed[0], path=place.name)] if is_file else listed, str(place))
    return Opened(place, folder.connector, entries, is_file, folder, local.Found(outside=list(seen.left_out)))


def _asset(storage: Storage, place: Place) -> Opened:
    asset = storage.asset(place.store, place.version)
    # The registered hash counts, whatever version the storage gives the file.
    listed = [
        replace(entry, etag=None) if entry.sha256 else entry for entry in storage.manifest(asset.name, asset.version)
    ]
    where = parse_place(asset.address)
    is_file = asset.type == "uri_file"
    named = replace(place, path=where.name if is_file else "", version=asset.version)
    if where.kind == "store":
        folder = OpenFolder(storage, where.parent if is_file else where, "read")
        entries = [replace(listed[0], path=where.name)] if is_file else check_entries(listed, place.text)
        return Opened(named, folder.connector, entries, is_file, folder)
    entries = [replace(listed[0], path="")] if is_file else check_entries(listed, place.text)
    return Opened(named, asset_source(storage, asset.name, asset.version), entries, is_file)


def _prepared(storage: Storage, opened: Opened, end: Place, choices: Choices, watch: Watch) -> Prepared:
    lands = landing(opened.place, end, one_file=opened.one_file, into_folder=_is_folder(storage, end))
    sink, folder = _open_target(storage, lands.folder)
    copies = [Copy(entry, lands.name_of(entry)) for entry in opened.entries]
    there = _there(storage, lands, copies, choices.delete)

    def identical(alike: Iterable[Copy]) -> set[str]:
        alike = list(alike)
        if alike:
            watch.begin("comparing")
        for side, names in ((opened.folder, [c.entry.path for c in alike]), (folder, [c.name for c in alike])):
            if side is not None and names:
                side.announce(names)

        def compared(copy: Copy) -> str | None:
            at_target = replace(there[copy.name], path=copy.name)
            return copy.name if hash_here(opened.source, copy.entry) == hash_here(sink, at_target) else None

        return {name for name in each(alike, compared, _SMALL_AT_ONCE) if name is not None}

    where = str(lands.folder)
    plan = decide(copies, there, identical, overwrite=choices.overwrite, delete=choices.delete, where=where)
    return Prepared(opened, lands, sink, plan, folder)


def _is_folder(storage: Storage, end: Place) -> bool:
    """Whether the target is an existing folder."""
    if end.kind == "local":
        return Path(end.path).is_dir()
    if end.kind != "store" or not end.path:
        return end.kind == "store"
    return any(entry.path for entry in storage.files(end.store, end.path, limit=1))


def _open_target(storage: Storage, place: Place) -> tuple[Sink, OpenFolder | None]:
    if place.kind == "local":
        return Folder(place.path), None
    if place.kind == "store":
        folder = OpenFolder(storage, place, "write")
        return folder.connector, folder
    if place.kind == "asset":
        raise JobError(
            f"{place.text} is a data asset, which never changes.", "`muster data create` makes a new version."
        )
    found = elsewhere(place)
    if not isinstance(found, Filesystem):
        raise UserError(f"{place.text} can only be read.", "Name a datastore, or s3://, gs:// and the like.")
    return found, None


def _there(storage: Storage, lands: Landing, copies: Sequence[Copy], every: bool) -> dict[str, FileEntry]:
    """Files that the target holds: those that the copy names, or every one."""
    place = lands.folder
    if place.kind == "local":
        root = Path(place.path)
        if every and root.is_dir():
            return {entry.path: entry for entry in local.find(root, use_ignore_files=False).files}
        return {copy.name: entry for copy in copies if (entry := _local_entry(root / copy.name)) is not None}
    if place.kind != "store":
        found = elsewhere(place)
        return {entry.path: entry for entry in found.listing()} if isinstance(found, Filesystem) else {}
    if lands.one_name is not None:
        listed = storage.files(place.store, joined(place.path, lands.one_name), limit=1)
        return {lands.one_name: listed[0]} if listed and not listed[0].path else {}
    listed = storage.files(place.store, place.path)
    if listed and not listed[0].path:
        raise Conflict(f"{place} is a file, and a folder is to be copied there.", "Choose another target.")
    return {entry.path: entry for entry in listed}


def _local_entry(path: Path) -> FileEntry | None:
    if path.is_dir():
        raise Conflict(f"{path} is a folder, and a file is to be copied there.", "Choose another target.")
    return FileEntry(path.name, path.stat().st_size) if path.exists() else None


def _fetch(prepared: Prepared, watch: Watch) -> None:
    opened, target = prepared.opened, Path(prepared.landing.folder.path)
    announce = opened.folder.announce if opened.folder is not None else None
    fetch_all(opened.source, str(opened.place), prepared.plan.copies, target, watch.add, announce)


def _send(prepared: Prepared, copies: Sequence[Copy], source: Source, watch: Watch) -> None:
    assert isinstance(source, Folder)
    files = [(copy.name, source.path_of(copy.entry.path), copy.entry.size) for copy in copies]
    _send_files(prepared.sink, prepared.folder, files, watch.add)


def send_files(storage: Storage, place: Place, files: Mapping[str, Path]) -> None:
    """Send local files to a folder of a datastore, by the names that they get there; existing ones are replaced."""
    with explained():
        folder = OpenFolder(storage, place, "write")
        sized = [(name, path, path.stat().st_size) for name, path in files.items()]
        _send_files(folder.connector, folder, sized, lambda _: None)


def _send_files(
    sink: Sink, folder: OpenFolder | None, files: Sequence[tuple[str, Path, int]], moved: Callable[[int], None]
) -> None:
    """Send files to the target, several at once."""

    def one(file: tuple[str, Path, int]) -> None:
        name, path, size = file
        found = measure(path)
        if found.size != size:
            raise SourceChanged(str(path))
        try:
            sink.put(name, path, found.size, found.sha256, moved)
        except OSError as error:
            raise _trouble(sink.label, name, error) from error

    for batch in batches(files):
        if folder is not None:
            folder.announce([name for name, _, _ in batch])
        for is_small, at_once in ((True, _SMALL_AT_ONCE), (False, _LARGE_AT_ONCE)):
            each([file for file in batch if (file[2] <= _SMALL_BYTES) == is_small], one, at_once)


def _trouble(where: str, name: str, error: OSError) -> TransferError:
    """The error for a file that could not be written, with its name and place: the system's message has neither."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    said = "there is no room left" if is_full else str(error.strerror or error)
    return TransferError("disk_full" if is_full else "data_unavailable", f"{joined(where, name)}: {said}")


def _through_here(prepared: Prepared, watch: Watch) -> None:
    """Copy between two storages, a part at a time through a folder of this machine."""
    opened = prepared.opened
    announce = opened.folder.announce if opened.folder is not None else None
    for part in _parts(prepared.plan.copies):
        with tempfile.TemporaryDirectory(prefix="muster-copy-") as spool:
            # Fetched under the names that they get, and counted when they are sent on.
            fetch_all(opened.source, str(opened.place), part, Path(spool), lambda _: None, announce)
            fetched = [Copy(replace(copy.entry, path=copy.name), copy.name) for copy in part]
            _send(prepared, fetched, Folder(spool), watch)


def _parts(copies: Sequence[Copy]) -> Iterable[list[Copy]]:
    part: list[Copy] = []
    for copy in copies:
        if part and (len(part) == 1000 or sum(c.entry.size for c in part) + copy.entry.size > _SPOOL_BYTES):
            yield part
            part = []
        part.append(copy)
    if part:
        yield part


def remove(storage: Storage, place: Place, names: Sequence[str]) -> None:
    """Remove files below a folder of this machine or of a datastore."""
    with explained():
        folder = OpenFolder(storage, place, "delete") if place.kind == "store" else None
        sink = folder.connector if folder is not None else Folder(place.path)
        for batch in batches(names):
            if folder is not None:
                folder.announce(batch)
            each(batch, sink.remove, _SMALL_AT_ONCE)


def each(items: Sequence[T], work: Callable[[T], object], at_once: int) -> list:  # type: ignore[type-arg]
    """The results in order; after the first failure no more work is begun."""
    with ThreadPoolExecutor(max(1, min(at_once, len(items)))) as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
