"""Code snapshots on the node: fetched once, unpacked safely, copied for each attempt."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Protocol, cast

from muster.agent.mover import Failed
from muster.agent.prepare.bundles import Bundles, worth_sharing
from muster.agent.refusal import Refusal
from muster.defaults import CODE_CACHE_BYTES
from muster.host.cache import FolderCache, HeldEntry, Size
from muster.host.files import disk_usage, is_safe_path, remove_tree
from muster.wire.data.access import Access, FileEntry

log = logging.getLogger(__name__)

_FICLONE = 0x40049409
_DATA = "data"


class Archive(Protocol):
    """Bytes as they arrive."""

    def read(self, size: int = -1, /) -> bytes: ...


Fetch = Callable[[str], AbstractContextManager[Archive]]
"""Opens the archive of a snapshot by its digest."""
Share = Callable[[str, Path], bool]
"""Fetches a snapshot's files into a folder together with other nodes; False: this node must fetch them alone."""


def copy_snapshot(
    root: Path,
    digest: str,
    fetch: Fetch,
    target: Path,
    limit_bytes: int = CODE_CACHE_BYTES,
    share: Share = lambda digest, folder: False,
) -> None:
    """Copy a snapshot's files to a folder; fetched first when they are not here, by one process at a time."""
    cache = FolderCache(root, limit_bytes, Size)
    held = cache.hold(digest)
    if held is None:
        with cache.building(digest):
            held = cache.hold(digest) or _fetched(cache, digest, fetch, share)
        cache.sweep()
        cache.make_room(keep=(digest,))
    with held.lock:
        copy_tree(held.entry.folder / _DATA, target)


def _fetched(cache: FolderCache[Size], digest: str, fetch: Fetch, share: Share) -> HeldEntry[Size]:
    cache.discard(digest)
    partial = cache.partial(digest)
    (partial / _DATA).mkdir(parents=True)
    if not share(digest, partial / _DATA):
        with fetch(digest) as archive:
            unpack(archive, partial / _DATA)
    return cache.commit(digest, Size(disk_usage(partial)))


def share_snapshot(bundles: Bundles, digest: str, target: Path) -> bool:
    """Fetch a large snapshot's files into a folder, each node of a gang its share of them."""
    files = bundles.link.snapshot(digest)
    if not worth_sharing([size for _, size, _ in files.values()]):
        return False
    entries = tuple(FileEntry(path, size, sha256) for path, (sha256, size, _) in files.items())
    access = Access("muster", f"/api/v1/snapshots/{digest}/files", label="the code", manifest=entries)
    try:
        with bundles.staged("code", digest, access, "the code") as data:
            for path, (_, _, mode) in files.items():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                copy_file(data / path, target / path)
                (target / path).chmod(0o755 if mode & 0o100 else 0o644)
    except Failed as error:
        log.info("the code %s was not shared, and is fetched alone: %s", digest, error)
        remove_tree(target)
        target.mkdir()
        return False
    return True


def unpack(archive: Archive, target: Path) -> None:
    """Unpack a tar stream; anything but files and folders below the target is refused."""
    with tarfile.open(fileobj=cast(IO[bytes], archive), mode="r|") as tar:
        for member in tar:
            if not is_safe_path(member.name) or not (member.isreg() or member.isdir()):
                message = f"{member.name!r} in the code archive is not a plain file or folder below it"
                raise Refusal("bad_input", message)
            path = target / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            mode = 0o755 if member.mode & 0o100 else 0o644
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder's contents; never by hard links, since the job may write to the copies."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        destination = target / entry.name
        if entry.is_symlink() and not entry.is_file():
            # A broken link, or one to a folder, stays a link, so that a loop of them does no harm.
            destination.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            copy_tree(Path(entry.path), destination)
        elif entry.is_file():
            copy_file(Path(entry.path), destination)


def copy_file(source: Path, target: Path) -> None:
    """Copy one file, sharing its blocks where the filesystem can."""
    with source.open("rb") as reading:
        mode = os.fstat(reading.fileno()).st_mode & 0o777 | 0o200
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as writing:
            with suppress(OSError):
                fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
                return
            shutil.copyfileobj(reading, writing, 1 << 20)
