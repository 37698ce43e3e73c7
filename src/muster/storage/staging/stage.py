"""Staging: from a source into the cache, once; the next job finds it there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from muster.host.files import write_json
from muster.storage.connectors.base import Source, SourceChanged, TransferError, files_at, without_ranges
from muster.storage.peers.blocks import Row, shelf_name
from muster.storage.peers.fetching import LEAST_SHARED_BYTES, Exchange, Gathering, Sharing, announce, worth_sharing
from muster.storage.peers.shelf import JOURNAL, BlockJournal, Shelved, whole_hashes, write_record
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


@dataclass(frozen=True)
class Together:
    """How a node shares what it stages with others."""

    exchange: Exchange
    node: str
    has_source: bool = True
    """Otherwise only other nodes have it, and it is shared however small it is."""
    least_bytes: int = LEAST_SHARED_BYTES


def stage(
    source: Source,
    where: str,
    what: str,
    announced: list[FileEntry] | None,
    cache: Cache,
    progress: Progress,
    together: Together | None = None,
) -> tuple[Held, list[FileEntry]]:
    """Put the source's files into the cache; returns the held tree and its files. `what` names the input in messages.

    `announced` lists what the files must be, where that is known; otherwise the source is listed. If something changes
    under way, all is fetched once more from the start.
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
            return _ensure(source, where, what, entries, cache, progress, together)
        except (SourceChanged, Damaged) as error:
            # The second time from the source alone, so that no peer can have damaged it.
            together = None
            if not tries or (announced is not None and isinstance(error, SourceChanged)):
                raise TransferError("data_unavailable", _why(error, what, announced is not None)) from error


def _ensure(
    source: Source,
    where: str,
    what: str,
    entries: list[FileEntry],
    cache: Cache,
    progress: Progress,
    together: Together | None,
) -> tuple[Held, list[FileEntry]]:
    if together is not None and without_ranges(source, entries) is not None:
        # Such files cannot be read block by block, and so not shared.
        together = None
    key = listing_key(where, entries)
    shared = _Shared.of(where, key, entries, cache, together)
    if found := _cached(key, entries, cache, progress):
        shared.announce()
        return found
    with cache.filling(key) as partial:
        # Another process may have been faster.
        if found := _cached(key, entries, cache, progress):
            shared.announce()
            return found
        if not boot_unchanged(partial):
            cache.drop_partial(key)
        cache.admit(key, total_size(entries), what)
        mark_boot(partial)
        write_json(partial / "listing.json", [where, to_json(entries)])
        try:
            hashes = shared.fetch(source, partial, progress)
        except (SourceChanged, Damaged):
            cache.drop_partial(key)
            raise
        done = with_hashes(entries, hashes)
        held = cache.commit(key, done)
        shared.keep_hashes()
        return held, done


@dataclass
class _Shared:
    """One content, and how it is shared with other nodes, if it is."""

    key: str
    row: Row
    cache: Path
    sharing: Sharing | None
    hashes: tuple[str, ...] = ()

    @classmethod
    def of(cls, where: str, key: str, entries: list[FileEntry], cache: Cache, together: Together | None) -> _Shared:
        row = Row(entries)
        sharing = None
        if together is not None and (not together.has_source or worth_sharing(row, together.least_bytes)):
            sharing = Sharing(together.exchange, shelf_name(where, row.content() or ""), together.node)
        return cls(key, row, cache.root, sharing)

    def announce(self) -> None:
        """Report a content that was here already, if its blocks' hashes are known."""
        known = whole_hashes(self.cache, self.sharing.shelf, self.row.count) if self.sharing else None
        if self.sharing is not None and known is not None:
            announce(self.row, known, self.sharing.exchange)

    def fetch(self, source: Source, partial: Path, progress: Progress) -> dict[str, str]:
        """Fetch every file into the partial folder, alone or together with other nodes; returns their hashes."""
        plain, blocks = partial / "journal.jsonl", partial / JOURNAL
        # What was begun one way is finished that way.
        if not blocks.exists() and (self.sharing is None or plain.exists()):
            journal = Journal(plain)
            try:
                return fetch(source, self.row.entries, partial / "data", journal, progress)
            finally:
                journal.close()
        self._record()
        arrived = BlockJournal(blocks)
        try:
            found = Gathering(source, self.row, partial / "data", arrived, progress, self.sharing).run()
        finally:
            arrived.close()
        self.hashes = tuple(arrived.blocks[block] for block in range(self.row.count))
        return found

    def keep_hashes(self) -> None:
        """Keep the hashes of a complete content, so that it can be offered to other nodes later, too."""
        if self.hashes:
            self._record()

    def _record(self) -> None:
        if self.sharing is not None:
            files = tuple((entry.path, entry.size) for entry in self.row.entries)
            write_record(self.cache, self.sharing.shelf, Shelved(self.key, files, self.hashes))


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
