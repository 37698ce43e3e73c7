"""Packing an environment into one file of the cache, for other nodes to take. Standard library only."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from muster.host.files import disk_usage, remove_tree
from muster.host.hashing import sha256_of
from muster.storage.peers.blocks import Row, shelf_name
from muster.storage.peers.fetching import Exchange, announce
from muster.storage.peers.shelf import Shelved, write_record
from muster.storage.staging.cache import Cache, Held, mark_boot
from muster.storage.staging.model import Progress, stored_path
from muster.wire.data.access import FileEntry
from muster.wire.node.builds import FOLDER_HEADER, PACKED_NAME

_COMPILED = "__pycache__"
"""Left out, since it can be made again: its content depends on the times of files."""


def offer(folder: Path, place: str, what: str, cache: Cache, progress: Progress, exchange: Exchange) -> Held:
    """Pack a folder under its name among nodes, and report to the server that it is here."""
    key = hashlib.sha256(f"packed {place}".encode()).hexdigest()
    with cache.filling(key) as partial:
        cache.drop_partial(key)
        cache.admit(key, disk_usage(folder), what)
        mark_boot(partial)
        packed = partial / "data" / PACKED_NAME
        packed.parent.mkdir(parents=True)
        _pack(folder, packed, progress)
        entry = FileEntry(PACKED_NAME, packed.stat().st_size, sha256_of(packed))
        row = Row([entry])
        hashes = _block_hashes(packed, row)
        packed.chmod(0o444)
        held = cache.commit(key, [entry])
        files = ((stored_path(entry), entry.size),)
        write_record(cache.root, shelf_name(place, row.content() or ""), Shelved(key, files, hashes))
    announce(row, dict(enumerate(hashes)), exchange)
    return held


def _pack(folder: Path, target: Path, progress: Progress) -> None:
    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if _COMPILED in Path(member.name).parts:
            return None
        progress.add(member.size, 1 if member.isreg() else 0)
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    try:
        with tarfile.open(target, "w", format=tarfile.PAX_FORMAT, pax_headers={FOLDER_HEADER: str(folder)}) as tar:
            tar.add(folder, arcname=".", filter=kept)
    except BaseException:
        remove_tree(target.parent)
        raise


def _block_hashes(packed: Path, row: Row) -> tuple[str, ...]:
    with packed.open("rb") as file:
        return tuple(hashlib.sha256(file.read(row.length(block))).hexdigest() for block in range(row.count))
