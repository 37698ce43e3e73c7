"""The workspace store: a folder, or any filesystem that fsspec knows."""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from muster import errors
from muster.host.files import flush_to_disk, replacing, safe_path
from muster.store import encryption, remote
from muster.store.keyring import MAGIC, KeyRing
from muster.store.pieces import HashedPieces, pieces_of
from muster.wire.codec import Json

_AT_ONCE = 16


class Store:
    """Named objects of any size; a put is atomic."""

    def __init__(self, url: str, options: Mapping[str, Json] | None = None, ring: KeyRing | None = None) -> None:
        self._fs, self._root = url_to_fs(url, **(options or {}))
        self._local = isinstance(self._fs, LocalFileSystem)
        self._ring = ring

    @property
    def filesystem(self) -> tuple[Any, str]:
        """Fsspec's filesystem, and the folder of it that is this store."""
        return self._fs, self._root

    @property
    def local_root(self) -> Path | None:
        return Path(self._root) if self._local else None

    def exists(self, name: str) -> bool:
        if self._local:
            return Path(self._path(name)).exists()
        return bool(self._fs.exists(self._path(name)))

    @property
    def encrypted(self) -> bool:
        """New objects are encrypted; those written before encryption was configured can still be read."""
        return self._ring is not None

    def size(self, name: str) -> int:
        return self._plain_size(self._path(name), int(self._fs.size(self._path(name))))

    def open(self, name: str) -> BinaryIO:
        """The plain content of an object, encrypted or not."""
        try:
            file = self._open(self._path(name))
        except FileNotFoundError:
            raise errors.NotFound(f"the workspace store has no {name}") from None
        if not _has_magic(file):
            return file
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return encryption.open_object(self._ring, file, size, name)

    def rewrap(self, name: str) -> bool:
        """Wrap an object's key in the first key of the ring; returns whether that was needed."""
        assert self._ring is not None
        path = self._path(name)
        if self._local:
            return encryption.rewrap_file(self._ring, Path(path), name)
        with self._open(path) as file:
            fresh = encryption.rewrap(self._ring, file.read(encryption.HEADER_BYTES), name)
            if fresh is None:
                return False
            with remote.replacing(self._fs, path) as target:
                for piece in itertools.chain([fresh], pieces_of(file)):
                    target.write(piece)
        return True

    def _open(self, path: str) -> BinaryIO:
        return Path(path).open("rb") if self._local else cast(BinaryIO, self._fs.open(path, "rb"))

    def _plain_size(self, path: str, stored: int) -> int:
        if self._ring is None:
            return stored
        with self._open(path) as file:
            return encryption.plain_size(stored) if _has_magic(file) else stored

    def _sealed(self, pieces: Iterable[bytes], name: str) -> Iterable[bytes | memoryview]:
        if self._ring is None:
            return pieces
        return encryption.encrypt(self._ring, pieces, name)

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, pieces: Iterable[bytes], sha256: str | None = None) -> int:
        """Write an object from its pieces; verified when its hash is given. Returns its size."""
        writing = nullcontext() if self._ring is None else self._ring.writing(lambda: self.rewrap(name))
        with writing, HashedPieces(pieces) as hashed, self._replacing(self._path(name)) as file:
            for piece in self._sealed(hashed, name):
                file.write(piece)
            hashed.verify(name, sha256)
            if self._local:
                flush_to_disk(file)
        if not self._local and self._ring is None:
            remote.check_size(self._fs, self._path(name), hashed.size)
        return hashed.size

    def link(self, source: str, target: str) -> None:
        """The same object under another name; linked instead of copied where the filesystem can."""
        if self._local and self._ring is None:
            to = Path(self._path(target))
            to.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(self._path(source), to)
                return
            except FileExistsError:
                return
            except OSError:
                pass  # another filesystem, or one without links
        with self.open(source) as file:
            self.put(target, pieces_of(file))

    def put_all(self, objects: Iterable[tuple[str, bytes, str]]) -> None:
        """Write small objects (name, content, hash), several at once, since each waits for the disk."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda item: self.put(item[0], [item[1]], sha256=item[2]), objects):
                pass

    def files(self, folder: str = "") -> Iterator[tuple[str, int, float]]:
        """Every object below a folder: its name from the store's root, its size and when it was written."""
        base = self._path(folder) if folder else self._root
        if self._local:
            for name, size, at in _local_files(Path(base), folder):
                yield name, self._plain_size(self._path(name), size), at
            return
        try:
            found = self._fs.find(base, detail=True)
        except FileNotFoundError:
            return
        for path, info in sorted(found.items()):
            inner = path.removeprefix(base.rstrip("/")).lstrip("/")
            if inner and info.get("type") == "file":
                size = self._plain_size(path, int(info.get("size") or 0))
                written = remote.written_at(info)
                # Unknown counts as just now: nothing is removed too early.
                yield f"{folder}/{inner}" if folder else inner, size, time.time() if written is None else written

    def remove_file(self, name: str) -> None:
        """Remove one object, never a folder."""
        path = self._path(name)
        if self._local:
            Path(path).unlink(missing_ok=True)
        elif self._fs.exists(path):
            self._fs.rm_file(path)

    def remove(self, name: str) -> None:
        """Remove an object, or a folder with everything below it."""
        path = self._path(name)
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def _replacing(self, path: str) -> AbstractContextManager[BinaryIO]:
        if not self._local:
            return remote.replacing(self._fs, path)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return replacing(Path(path))

    def _path(self, name: str) -> str:
        return f"{self._root}/{safe_path(name)}"


def _has_magic(file: BinaryIO) -> bool:
    """Whether an encrypted object begins here; the file is left at its beginning."""
    begins = file.read(len(MAGIC))
    file.seek(0)
    return begins == MAGIC


def _local_files(base: Path, folder: str) -> Iterator[tuple[str, int, float]]:
    for parent, folders, names in os.walk(base):
        folders.sort()
        inner = os.path.relpath(parent, base)
        above = "/".join(part for part in (folder, "" if inner == "." else inner) if part)
        for name in sorted(names):
            try:
                status = Path(parent, name).stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield f"{above}/{name}" if above else name, status.st_size, status.st_mtime
