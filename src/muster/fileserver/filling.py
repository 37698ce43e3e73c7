"""Filling a file server: a source's files are fetched to a separate folder, verified, and then moved into place."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.fileserver.folder import free_bytes, used_bytes
from muster.host.files import read_json, write_json
from muster.host.http import Address
from muster.paths import FileServerPaths
from muster.storage.connectors.base import SourceChanged, TransferError, files_at
from muster.storage.connectors.credentials import Refresh
from muster.storage.connectors.opening import open_access
from muster.storage.staging.download import Damaged, Journal, fetch
from muster.storage.staging.model import Progress, check_entries, listing_key, total_size
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.data.access import Access, FileEntry, where_of
from muster.wire.message import wire
from muster.wire.text import size

_TRIES = 2


@wire
class Filled:
    """The files that a fill has brought."""

    files: Mapping[str, tuple[int, str, str]]
    """By path: size, the source's ETag, and hash."""


class Fill:
    """One source and the folder that it fills."""

    def __init__(self, paths: FileServerPaths, source: str, to: str) -> None:
        self._paths = paths
        self.target = paths.data / to if to else paths.data
        key = hashlib.sha256(f"{source}\n{to}".encode()).hexdigest()[:16]
        self._folder = paths.fills / key
        self._record = self._folder / "filled.json"

    def known(self) -> Filled:
        """The files that it brought before."""
        try:
            return from_json(Filled, read_json(self._record))
        except (OSError, ValueError, WireError):
            return Filled({})

    def run(
        self,
        access: Access,
        progress: Progress,
        limit: Callable[[], int],
        server: Address | None = None,
        refresh: Refresh | None = None,
    ) -> Filled:
        """Fetch what is new or has changed; raises TransferError. Continues where an earlier call was interrupted."""
        if not _is_inside(self._paths.data, self.target):
            raise TransferError("bad_input", f"{self.target} leads out of the file server's folder")
        source = open_access(access, server, refresh)
        for left in reversed(range(_TRIES)):
            listed = access.manifest if access.manifest is not None else files_at(source)
            entries = check_entries(listed, access.label)
            if len(entries) == 1 and not entries[0].path:
                raise TransferError("bad_input", f"{access.label} is a file", final=True, next="Name its folder.")
            if not entries:
                raise TransferError("data_unavailable", f"{access.label} holds no files")
            try:
                return self._bring(source, where_of(access), entries, progress, limit)
            except (SourceChanged, Damaged) as error:
                if not left or access.manifest is not None:
                    raise TransferError("data_unavailable", f"{access.label}: {error.message}", final=True) from error
        raise AssertionError("unreachable")

    def _bring(
        self, source: object, where: str, entries: list[FileEntry], progress: Progress, limit: Callable[[], int]
    ) -> Filled:
        known = self.known().files
        new = [entry for entry in entries if not self._has(entry, known.get(entry.path))]
        progress.total_bytes, progress.total_files = total_size(entries), len(entries)
        progress.begin("")
        progress.add(total_size(entries) - total_size(new), len(entries) - len(new), resumed=True)
        partial = self._folder / listing_key(where, new)[:16]
        self._drop_others(partial)
        self._check_room(new, partial, limit())
        hashes: dict[str, str] = {}
        if new:
            partial.mkdir(parents=True, exist_ok=True)
            journal = Journal(partial / "journal.jsonl")
            try:
                hashes = fetch(source, new, partial / "data", journal, progress)  # type: ignore[arg-type]
            finally:
                journal.close()
            for entry in new:
                _move(partial / "data" / entry.path, self.target / entry.path)
        filled = Filled({entry.path: _kept(entry, hashes, known) for entry in entries})
        write_json(self._record, to_json(filled))
        shutil.rmtree(partial, ignore_errors=True)
        return filled

    def _has(self, entry: FileEntry, kept: tuple[int, str, str] | None) -> bool:
        if kept is None or kept[0] != entry.size:
            return False
        same = entry.sha256 == kept[2] if entry.sha256 else bool(entry.etag) and entry.etag == kept[1]
        try:
            return same and (self.target / entry.path).stat().st_size == entry.size
        except OSError:
            return False

    def _drop_others(self, partial: Path) -> None:
        """Remove what was begun for an earlier listing and will not be finished."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for found in self._folder.iterdir():
            if found.is_dir() and found != partial:
                shutil.rmtree(found, ignore_errors=True)

    def _check_room(self, new: list[FileEntry], partial: Path, limit: int) -> None:
        begun = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file()) if partial.exists() else 0
        need = max(0, total_size(new) - begun)
        used, free = used_bytes(self._paths), free_bytes(self._paths)
        replaced = sum(_size(self.target / entry.path) for entry in new)
        if used + need - replaced > limit:
            raise TransferError(
                "disk_full",
                f"{size(need)} more would make {size(used + need - replaced)}, and the file server may hold "
                f"{size(limit)}",
                final=True,
                next="Make it larger: `muster fileserver resize`, and fill it again.",
            )
        if need > free:
            raise TransferError(
                "disk_full",
                f"{size(need)} are needed in {self._paths.root}, which has {size(free)} free",
                final=True,
                next="Free some space on the node, or create the file server with --folder on another disk.",
            )


def _kept(
    entry: FileEntry, hashes: Mapping[str, str], known: Mapping[str, tuple[int, str, str]]
) -> tuple[int, str, str]:
    before = known.get(entry.path)
    found = hashes.get(entry.path) or entry.sha256 or (before[2] if before else "")
    return entry.size, entry.etag or "", found


def _move(source: Path, target: Path) -> None:
    """Move a file into place atomically, readable by other accounts."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.chmod(0o444)
    source.replace(target)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_inside(root: Path, target: Path) -> bool:
    return Path(os.path.realpath(target)).is_relative_to(os.path.realpath(root))
