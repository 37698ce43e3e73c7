"""The workspace store: a folder, or any filesystem that fsspec knows."""

from __future__ import annotations

import itertools
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from muster import errors
from muster.host.files import safe_path
from muster.store.keyring import MAGIC, KeyRing
from muster.store.pieces import HashedPieces, pieces_of
from muster.wire.codec import Json


class Store:
    """Named objects of any size; a put is whole or not at all."""

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
        """What is written here is encrypted; what was written before that was asked for can still be read."""
        return self._ring is not None

    def size(self, name: str) -> int:
        return self._plain_size(self._path(name), int(self._fs.size(self._path(name))))

    def open(self, name: str) -> BinaryIO:
        """An object as it was put, whether or not it is encrypted."""
        try:
            file = self._open(self._path(name))
        except FileNotFoundError:
            raise errors.NotFound(f"the workspace store has no {name}") from None
        if not _has_magic(file):
            return file
        from muster.store import encryption

        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return encryption.open_object(self._ring, file, size, name)

    def rewrap(self, name: str) -> bool:
        """Wrap an object's key in the first key of the ring; whether that was needed."""
        from muster.store import encryption

        assert self._ring is not None
        path = self._path(name)
        with self._open(path) as file:
            header = file.read(encryption.HEADER_BYTES)
            fresh = encryption.rewrap(self._ring, header, name) if encryption.is_encrypted(header) else None
            if fresh is None:
                return False
            if not self._local:
                self._replace(path, name, itertools.chain([fresh], pieces_of(file)))
                return True
        # The body stays, and the header is small enough to be written at once.
        with Path(path).open("r+b", buffering=0) as file:
            file.write(fresh)
            os.fsync(file.fileno())
        return True

    def _open(self, path: str) -> BinaryIO:
        return Path(path).open("rb") if self._local else cast(BinaryIO, self._fs.open(path, "rb"))

    def _plain_size(self, path: str, stored: int) -> int:
        if self._ring is None:
            return stored
        from muster.store import encryption

        with self._open(path) as file:
            return encryption.plain_size(stored) if _has_magic(file) else stored

    def _sealed(self, pieces: Iterable[bytes]) -> Iterable[bytes | memoryview]:
        if self._ring is None:
            return pieces
        from muster.store import encryption

        return encryption.encrypt(self._ring, pieces)

    def _replace(self, path: str, name: str, pieces: Iterable[bytes]) -> None:
        """Write stored bytes in the place of others, whole or not at all."""
        part = f"{path}.part-{secrets.token_hex(4)}"
        with self._fs.open(part, "wb") as file:
            for piece in pieces:
                file.write(piece)
        self._fs.mv(part, path)

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, pieces: Iterable[bytes], sha256: str | None = None) -> int:
        """Write an object from its pieces; verified when its hash is given. Returns its size."""
        if self._local:
            return self._put_local(name, pieces, sha256)
        part = self._path(f"{name}.part-{secrets.token_hex(4)}")
        self._fs.makedirs(part.rpartition("/")[0], exist_ok=True)
        try:
            with HashedPieces(pieces) as hashed, self._fs.open(part, "wb") as file:
                for piece in self._sealed(hashed):
                    file.write(piece)
            hashed.verify(name, sha256)
            self._fs.mv(part, self._path(name))
        except BaseException:
            if self._fs.exists(part):
                self._fs.rm(part)
            raise
        return hashed.size

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
                yield f"{folder}/{inner}" if folder else inner, size, _written_at(info)

    def remove(self, name: str) -> None:
        path = self._path(name)
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def _put_local(self, name: str, pieces: Iterable[bytes], sha256: str | None) -> int:
        target = Path(self._path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name[:100]}.part-{secrets.token_hex(4)}")
        try:
            with HashedPieces(pieces) as hashed, part.open("wb") as file:
                for piece in self._sealed(hashed):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            hashed.verify(name, sha256)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return hashed.size

    def _path(self, name: str) -> str:
        return f"{self._root}/{safe_path(name)}"


def _has_magic(file: BinaryIO) -> bool:
    """Whether what begins here is an encrypted object; the file is left at its beginning."""
    begins = file.read(len(MAGIC))
    file.seek(0)
    return begins == MAGIC


def _local_files(base: Path, folder: str) -> Iterator[tuple[str, int, float]]:
    for place, folders, names in os.walk(base):
        folders.sort()
        inner = os.path.relpath(place, base)
        above = "/".join(part for part in (folder, "" if inner == "." else inner) if part)
        for name in sorted(names):
            try:
                status = Path(place, name).stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield f"{above}/{name}" if above else name, status.st_size, status.st_mtime


def _written_at(info: Mapping[str, Json | datetime]) -> float:
    """When an object was written, as its filesystem tells it; unknown counts as just now: nothing goes early."""
    for key in ("mtime", "last_modified", "LastModified", "modified", "updated"):
        value = info.get(key)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, datetime):
            return value.timestamp()
    return time.time()
