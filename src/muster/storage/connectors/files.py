"""Storage that the node sees as files, and everything else that fsspec knows."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from muster.storage.connectors.web import check_unchanged
from muster.storage.staging.model import Entry, SourceChanged, TransferError

_PIECE = 1 << 20
_OWN = "seen:"
"""Begins a version that was found here; what others call a version cannot be compared with it."""


class Folder:
    """A folder or file of the node's own filesystem: a local datastore, a mounted share."""

    def __init__(self, path: str, label: str = "") -> None:
        self._root = Path(path)
        self.label = label or path

    def listing(self) -> list[Entry]:
        try:
            status = self._root.stat()
            if not self._root.is_dir():
                return [Entry("", status.st_size, _version(status))]
            return list(self._walk(self._root, ""))
        except OSError as error:
            raise TransferError("data_unavailable", f"{self.label}: {error.strerror}") from error

    def _walk(self, folder: Path, above: str) -> list[Entry]:
        found = []
        for item in os.scandir(folder):
            path = f"{above}{item.name}"
            if item.is_dir(follow_symlinks=False):
                found += self._walk(Path(item.path), f"{path}/")
            elif item.is_file():
                status = item.stat()
                found.append(Entry(path, status.st_size, _version(status)))
        return found

    def path_of(self, entry: Entry) -> Path:
        return self._root / entry.path if entry.path else self._root

    def read(self, entry: Entry, offset: int, view: memoryview) -> None:
        with self.path_of(entry).open("rb", buffering=0) as file:
            file.seek(offset)
            filled = 0
            while filled < len(view):
                count = file.readinto(view[filled:])
                if not count:
                    raise SourceChanged(str(self.path_of(entry)))
                filled += count
            self.check(entry, os.fstat(file.fileno()))

    def check(self, entry: Entry, status: os.stat_result) -> None:
        if entry.version.startswith(_OWN) and _version(status) != entry.version:
            raise SourceChanged(str(self.path_of(entry)))

    def known(self, name: str) -> tuple[int, str | None] | None:
        try:
            with (self._root / name if name else self._root).open("rb") as file:
                return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        target = self._root / name if name else self._root
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name[:100]}.part-{secrets.token_hex(4)}")
        try:
            check_unchanged(path, _copy(path, part, moved), sha256)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def move(self, name: str, new_name: str) -> None:
        target = self._root / new_name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._root / name).replace(target)
        self._tidy(name)

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)
        self._tidy(name)

    def _tidy(self, name: str) -> None:
        """Folders that hold nothing any more go too."""
        for folder in (self._root / name).parents:
            if folder == self._root:
                break
            try:
                folder.rmdir()
            except OSError:
                break


class Fsspec:
    """Any filesystem that fsspec knows, by its URL and options."""

    def __init__(self, url: str, options: Mapping[str, Any], label: str = "") -> None:
        from fsspec.core import url_to_fs

        try:
            self._fs, self._root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise TransferError("data_unavailable", f"{label or url}: {error}") from error
        self.label = label or url

    def listing(self) -> list[Entry]:
        try:
            if self._fs.isfile(self._root):
                return [_entry("", self._fs.info(self._root))]
            found = self._fs.find(self._root, detail=True)
        except (OSError, ValueError) as error:
            raise TransferError("data_unavailable", f"{self.label}: {error}") from error
        base = self._root.rstrip("/") + "/"
        return [_entry(path.removeprefix(base), info) for path, info in found.items()]

    def read(self, entry: Entry, offset: int, view: memoryview) -> None:
        path = self._path(entry.path)
        try:
            data = self._fs.cat_file(path, start=offset, end=offset + len(view)) if len(view) else b""
        except FileNotFoundError as error:
            raise TransferError("data_unavailable", f"{self.label}: {entry.path} is not there") from error
        except OSError as error:
            raise TransferError("data_unavailable", f"{self.label}: {entry.path}: {error}") from error
        if len(data) != len(view):
            raise SourceChanged(f"{self.label}: {entry.path}")
        view[:] = data
        if entry.version.startswith(_OWN) and offset + len(view) == entry.size:
            # No condition can be sent along, so the last part looks whether it is still the same.
            self._fs.invalidate_cache()
            if _entry(entry.path, self._fs.info(path)).version != entry.version:
                raise SourceChanged(f"{self.label}: {entry.path}")

    def known(self, name: str) -> tuple[int, str | None] | None:
        path = self._path(name)
        if not self._fs.exists(path):
            return None
        digest, size = hashlib.sha256(), 0
        with self._fs.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
        return size, digest.hexdigest()

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        target = self._path(name)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        digest = hashlib.sha256()
        with path.open("rb") as source, self._fs.open(target, "wb") as file:
            while piece := source.read(_PIECE):
                digest.update(piece)
                file.write(piece)
                moved(len(piece))
        check_unchanged(path, digest.hexdigest(), sha256)
        self._fs.invalidate_cache()
        if int(self._fs.size(target)) != size:
            raise TransferError("data_unavailable", f"{self.label}: {name}: what was stored is not what was sent")

    def move(self, name: str, new_name: str) -> None:
        target = self._path(new_name)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.mv(self._path(name), target)

    def remove(self, name: str) -> None:
        if self._fs.exists(self._path(name)):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root


def _entry(path: str, info: Mapping[str, Any]) -> Entry:
    pins = [info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated")]
    return Entry(path, int(info.get("size") or 0), next((f"{_OWN}{pin}" for pin in pins if pin), ""))


def _version(status: os.stat_result) -> str:
    return f"{_OWN}{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def _copy(source: Path, target: Path, moved: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        shutil.copymode(source, target)
        while piece := reading.read(_PIECE):
            digest.update(piece)
            writing.write(piece)
            moved(len(piece))
        os.fsync(writing.fileno())
    return digest.hexdigest()
