"""Staging: from a source into the cache, once; the next job finds it there."""

from __future__ import annotations

import shutil
from pathlib import Path

from muster.host.files import write_json
from muster.storage.connectors.base import Source, SourceChanged, TransferError, files_at
from muster.storage.staging.cache import Cache, Held, boot_unchanged, mark_boot
from muster.storage.staging.download import Damaged, Journal, fetch
from muster.storage.staging.model import (
    Progress,
    check_entries,
    listing_key,
    stored_path,
    total_size,
    tree_digest,
    with_hashes,
)
from muster.wire.codec import to_json
from muster.wire.data.access import FileEntry


def stage(
    source: Source, where: str, what: str, announced: list[FileEntry] | None, cache: Cache, progress: Progress
) -> tuple[Held, list[FileEntry]]:
    """The source's files in the cache, held; and what they are. `what` names the input in messages.

    `announced` is what the files must be, where that is known; otherwise the source is listed, and what changes under
    way is fetched once more from the start.
    """
    tries = 2
    while True:
        entries = check_entries(announced if announced is not None else files_at(source), where)
        if not entries:
            raise TransferError("data_unavailable", f"{what}: {where} holds no files")
        progress.total_bytes, progress.total_files = total_size(entries), len(entries)
        progress.begin("")
        tries -= 1
        try:
            return _ensure(source, where, what, entries, cache, progress)
        except (SourceChanged, Damaged) as error:
            if not tries or (announced is not None and isinstance(error, SourceChanged)):
                raise TransferError("data_unavailable", _why(error, what, announced is not None)) from error


def _ensure(
    source: Source, where: str, what: str, entries: list[FileEntry], cache: Cache, progress: Progress
) -> tuple[Held, list[FileEntry]]:
    key = listing_key(where, entries)
    if found := _cached(key, entries, cache, progress):
        return found
    with cache.filling(key) as partial:
        # Another process may have been faster.
        if found := _cached(key, entries, cache, progress):
            return found
        if not boot_unchanged(partial):
            cache.drop_partial(key)
        cache.admit(key, total_size(entries), what)
        mark_boot(partial)
        write_json(partial / "listing.json", [where, to_json(entries)])
        journal = Journal(partial / "journal.jsonl")
        try:
            hashes = fetch(source, entries, partial / "data", journal, progress)
        except (SourceChanged, Damaged):
            cache.drop_partial(key)
            raise
        finally:
            journal.close()
        done = with_hashes(entries, hashes)
        return cache.commit(key, done), done


def _cached(
    key: str, entries: list[FileEntry], cache: Cache, progress: Progress
) -> tuple[Held, list[FileEntry]] | None:
    announced = all(entry.sha256 for entry in entries)
    digest = tree_digest(entries) if announced else cache.known(key)
    held = cache.hold(digest) if digest else None
    if held is None:
        return None
    if not announced:
        entries = with_hashes(entries, {entry.path: held.tree.files[stored_path(entry)][1] for entry in entries})
    progress.add(held.size, len(held.tree.files), resumed=True)
    return held, entries


def _why(error: TransferError, what: str, is_announced: bool) -> str:
    if isinstance(error, Damaged):
        return f"{what}: {error.message}, twice. The source is damaged, or was changed after it was registered."
    if is_announced:
        return f"{what}: {error.message}, and it is registered with another content. Register a new version of it."
    return f"{what}: {error.message}, twice. Wait until nothing writes there any more, and run the job again."


def check_room(folder: Path, size: int, what: str) -> None:
    """Refuse a copy that the disk cannot take, before it begins."""
    free = shutil.disk_usage(folder).free
    if size > free:
        gib = 1 << 30
        raise TransferError(
            "disk_full",
            f"{what} needs {size / gib:.2f} GiB in {folder}, which has {free / gib:.2f} GiB free",
            next="Free some space there, or read the input with mode ro_mount, which needs no copy.",
        )
