"""The files of a data set: in a folder of this machine, or remote and fetched into the node's cache."""

from __future__ import annotations

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from muster.errors import JobError, MissingExtra, NotFound
from muster.host.files import is_safe_path
from muster.paths import data_cache_dir
from muster.storage.connectors.base import TransferError
from muster.storage.staging.cache import Cache, Held
from muster.storage.staging.model import listing_key, tree_digest
from muster.wire.data.access import FileEntry

T = TypeVar("T")

_PIECE = 8 << 20
_TRIES = 5
_PAUSE_S = 0.5
Expected = tuple[int, str]
"""A file's size and hash."""


class Files(ABC):
    """The files of one folder, by their names in it."""

    where: str

    @abstractmethod
    def names(self) -> list[str]:
        """The names of the files directly in the folder."""

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def open(self, name: str) -> BinaryIO: ...

    @abstractmethod
    def fetch(self, name: str, expected: Expected | None) -> Local:
        """Make the file available on this machine."""

    def will_fetch(self, names: Iterable[str]) -> None:
        """Announce the files that are fetched next, in that order."""
        return


class Local:
    """A file on this machine, which is kept until it is released."""

    def __init__(self, path: Path, held: Held | None = None) -> None:
        self.path, self._held = path, held

    def release(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


class LocalFiles(Files):
    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}.", "Give the folder of the data set, or an address.")

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.folder) if entry.is_file())

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        return (self.folder / name).open("rb")

    def fetch(self, name: str, expected: Expected | None) -> Local:
        return Local(self.folder / name)


class RemoteFiles(Files):
    """Files below an address that fsspec supports (`s3://`, `gs://`, `abfs://`, `https://` …)."""

    def __init__(self, address: str) -> None:
        self.where = address.rstrip("/")
        self._opened: tuple[int, Any, str] | None = None

    def names(self) -> list[str]:
        system, root = self._system()
        found = _patiently(lambda: system.ls(root, detail=True))
        return sorted(entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "file")

    def read(self, name: str) -> bytes:
        system, root = self._system()
        content: bytes = _patiently(lambda: system.cat_file(f"{root}/{name}"))
        return content

    def open(self, name: str) -> BinaryIO:
        system, root = self._system()
        opened: BinaryIO = _patiently(lambda: system.open(f"{root}/{name}", "rb"))
        return opened

    def fetch(self, name: str, expected: Expected | None) -> Local:
        """Take the file from the node's cache, or fetch it there: one process fetches while the node's others wait."""
        if not is_safe_path(name):
            raise JobError(f"{self.where} names a file {name!r}, which would leave its folder.", "Mend its index.")
        entry = self._entry(name, expected)
        cache = Cache(data_cache_dir())
        key = listing_key(self.where, [entry])
        if held := self._cached(cache, key, entry):
            return Local(held.data / entry.path, held)
        with cache.filling(key) as partial:
            if held := self._cached(cache, key, entry):
                return Local(held.data / entry.path, held)
            cache.admit(key, entry.size, f"{self.where}/{name}")
            target = partial / "data" / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            found = _patiently(lambda: self._download(name, target))
            if expected is not None and found != expected:
                cache.drop_partial(key)
                raise TransferError(
                    "data_unavailable",
                    f"{self.where}/{name} is not what its index says: {found[0]} bytes with SHA-256 {found[1]}, not "
                    f"{expected[0]} with {expected[1]}",
                )
            target.chmod(0o444)
            held = cache.commit(key, [FileEntry(entry.path, found[0], found[1])])
        return Local(held.data / entry.path, held)

    def _cached(self, cache: Cache, key: str, entry: FileEntry) -> Held | None:
        digest = tree_digest([entry]) if entry.sha256 else cache.known(key)
        return cache.hold(digest) if digest else None

    def _entry(self, name: str, expected: Expected | None) -> FileEntry:
        path = name.rpartition("/")[2]
        if expected is not None:
            return FileEntry(path, *expected)
        system, root = self._system()
        about = _patiently(lambda: system.info(f"{root}/{name}"))
        marks = [
            str(about[mark]) for mark in ("ETag", "etag", "mtime", "LastModified", "last_modified") if mark in about
        ]
        return FileEntry(path, int(about.get("size") or 0), etag=" ".join(marks) or None)

    def _download(self, name: str, target: Path) -> Expected:
        system, root = self._system()
        digest, size = hashlib.sha256(), 0
        with system.open(f"{root}/{name}", "rb") as source, target.open("wb") as file:
            while piece := source.read(_PIECE):
                digest.update(piece)
                file.write(piece)
                size += len(piece)
        return size, digest.hexdigest()

    def _system(self) -> tuple[Any, str]:
        """One per process: connections do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), *_file_system(self.where))
        return self._opened[1:]

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.where, self._opened = state["where"], None


def _file_system(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(address, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as error:
        raise MissingExtra(f"reading {address} needs another package: {error}", "Install it with pip.") from error
    except ValueError as error:
        raise JobError(
            f"{address} is no address that can be read: {error}.", "Give s3://, gs://, https:// …"
        ) from error
    return system, root.rstrip("/")


def _patiently(work: Callable[[], T]) -> T:
    """Retry errors that may pass: a broken connection, a busy service."""
    for attempt in range(_TRIES):
        try:
            return work()
        except (FileNotFoundError, PermissionError):
            raise
        except (OSError, TimeoutError) as error:
            if attempt == _TRIES - 1:
                raise TransferError("data_unavailable", f"{type(error).__name__}: {error}") from error
            time.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")
