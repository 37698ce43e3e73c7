"""The workspace store: a folder, or any filesystem that fsspec knows."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from muster import errors

_PIECE = 1 << 20


class Store:
    """Named objects of any size; a put is whole or not at all."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = url_to_fs(url)
        self._local = isinstance(self._fs, LocalFileSystem)

    @property
    def local_root(self) -> Path | None:
        return Path(self._root) if self._local else None

    def exists(self, name: str) -> bool:
        if self._local:
            return Path(self._path(name)).exists()
        return bool(self._fs.exists(self._path(name)))

    def size(self, name: str) -> int:
        return int(self._fs.size(self._path(name)))

    def open(self, name: str) -> BinaryIO:
        try:
            if self._local:
                return Path(self._path(name)).open("rb")
            return cast(BinaryIO, self._fs.open(self._path(name), "rb"))
        except FileNotFoundError:
            raise errors.NotFound(f"the workspace store has no {name}") from None

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def put(self, name: str, pieces: Iterable[bytes], sha256: str | None = None) -> int:
        """Write an object from its pieces; verified when its hash is given. Returns its size."""
        if self._local:
            return self._put_local(name, pieces, sha256)
        part = self._path(f"{name}.part-{secrets.token_hex(4)}")
        digest, size = hashlib.sha256(), 0
        self._fs.makedirs(part.rpartition("/")[0], exist_ok=True)
        try:
            with self._fs.open(part, "wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
            _verify(name, digest.hexdigest(), sha256)
            self._fs.mv(part, self._path(name))
        except BaseException:
            if self._fs.exists(part):
                self._fs.rm(part)
            raise
        return size

    def remove(self, name: str) -> None:
        path = self._path(name)
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def _put_local(self, name: str, pieces: Iterable[bytes], sha256: str | None) -> int:
        target = Path(self._path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name[:100]}.part-{secrets.token_hex(4)}")
        digest, size = hashlib.sha256(), 0
        try:
            with part.open("wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            _verify(name, digest.hexdigest(), sha256)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return size

    def _path(self, name: str) -> str:
        return f"{self._root}/{safe_name(name)}"


def safe_name(name: str) -> str:
    """The name, if it stays inside its folder."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise errors.JobError(
            f"the name {name!r} leaves its folder",
            "Use a relative name without '..', empty parts or a leading slash.",
        )
    return name


def _verify(name: str, found: str, wanted: str | None) -> None:
    if wanted is not None and found != wanted:
        raise errors.JobError(f"{name} arrived damaged: sha256 {found}, expected {wanted}", "Send it again.")


def pieces_of(file: BinaryIO, length: int | None = None) -> Iterator[bytes]:
    """A file in pieces of a megabyte, at most `length` bytes of it."""
    left = length
    while left is None or left > 0:
        piece = file.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece
