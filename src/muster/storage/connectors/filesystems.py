"""Everything else that fsspec knows, by its URL and options."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from muster.host.hashing import Measuring, measure_pieces
from muster.storage.addresses import joined
from muster.storage.connectors.base import PIECE_BYTES, SourceChanged, TransferError, check_unchanged
from muster.storage.connectors.public import Public
from muster.store.pieces import HashedPieces, pieces_of
from muster.store.remote import Info, check_size, is_local, move_file, replacing, written_at
from muster.wire.codec import Json
from muster.wire.data.access import FileEntry, file_etag

_NEEDS_GCSFS = "it needs the package gcsfs, which is not installed"
_AT_ONCE = 16
"""The most files whose sizes are requested at once."""


class Filesystem:
    """A folder or one file of a filesystem. Its cached listings are dropped before use: others write there too."""

    def __init__(self, filesystem: Any, root: str, label: str = "") -> None:
        self._fs = filesystem
        self._root = root
        self.label = label or root
        self._listed: dict[str, str | None] = {}
        self._is_web = _speaks(filesystem, "http")
        self.root = Path(root) if is_local(filesystem) else None
        """The folder, if it is on this machine."""

    @classmethod
    def at(cls, url: str, options: Mapping[str, Json], label: str = "") -> Filesystem:
        from fsspec import register_implementation
        from fsspec.core import url_to_fs

        for protocol in ("gs", "gcs"):
            # Its default asks for the kind of each bucket by gRPC, which only Google's own servers answer.
            register_implementation(protocol, "gcsfs.core.GCSFileSystem", clobber=True, errtxt=_NEEDS_GCSFS)
        if url.startswith(("gs:", "gcs:")):
            # It also logs a traceback of every exception that it raises.
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        filesystem, root = url_to_fs(url, **options)
        return cls(filesystem, root, label or url)

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        base = self._path(folder).rstrip("/")
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(base, detail=True)
            if not found:
                # `find` ignores errors on its way; `ls` raises them.
                self._fs.ls(base, detail=False)
        except FileNotFoundError:
            return
        for path, info in self._sized(sorted(found.items())):
            inner = path.removeprefix(base).lstrip("/")
            if self._is_web:
                # Links on a page: one with a query only sorts the page, and is no file.
                inner = "" if urlsplit(path).query or urlsplit(path).fragment else unquote(inner)
            if inner and info.get("type") == "file":
                entry = self._entry(inner, info)
                self._listed[joined(folder, inner)] = entry.etag
                yield entry

    def _sized(self, found: list[tuple[str, Info]]) -> Iterator[tuple[str, Info]]:
        """Fill in missing sizes: a web server's page has none, so each file is looked up."""
        unknown = [path for path, info in found if info.get("type") == "file" and info.get("size") is None]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = dict(zip(unknown, pool.map(self._fs.info, unknown), strict=True)) if unknown else {}
        for path, info in found:
            yield path, asked.get(path, info)

    def stat(self, path: str) -> FileEntry | None:
        full = self._path(path)
        self._fs.invalidate_cache(full.rpartition("/")[0])
        try:
            info = self._fs.info(full)
        except FileNotFoundError:
            return None
        if info.get("type") != "file" or (self._is_web and _is_page(info)):
            return None
        entry = self._entry("", info, path)
        self._listed[path] = entry.etag
        return entry

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
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
        if self._listed.get(entry.path, "") == entry.etag and offset + len(view) == entry.size:
            # No condition can be sent along, so the version is checked after the last part.
            self._fs.invalidate_cache()
            if version_of(self._fs.info(path)) != entry.etag:
                raise SourceChanged(f"{self.label}: {entry.path}")

    def has_ranges(self, entry: FileEntry) -> bool:
        """Every filesystem reads parts of files, except a web server without ranges."""
        return not self._is_web or Public(self._path(entry.path)).has_ranges(FileEntry("", entry.size))

    def whole(self, entry: FileEntry) -> Iterator[bytes]:
        """All of a file from its beginning."""
        with self._fs.open(self._path(entry.path), "rb", block_size=0) as file:
            yield from pieces_of(file, None)

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._fs.open(self._path(path), "rb") as file:
            file.seek(offset)
            yield from pieces_of(file, length)

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        target = self._path(path)
        if fresh and self._fs.exists(target):
            raise FileExistsError(path)
        with HashedPieces(pieces) as hashed, replacing(self._fs, target) as file:
            for piece in hashed:
                file.write(piece)
            hashed.verify(path, sha256)
        check_size(self._fs, target, hashed.size)
        return hashed.size

    def known(self, name: str) -> tuple[int, str | None] | None:
        if not self._fs.exists(self._path(name)):
            return None
        found = measure_pieces(self.pieces(name))
        return found.size, found.sha256

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        target = self._path(name)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        measuring = Measuring()
        with path.open("rb") as source, self._fs.open(target, "wb") as file:
            while piece := source.read(PIECE_BYTES):
                measuring.add(piece)
                file.write(piece)
                moved(len(piece))
        check_unchanged(path, measuring.sha256, sha256)
        try:
            check_size(self._fs, target, size)
        except OSError as error:
            raise TransferError("data_unavailable", f"{self.label}: {name}: {error}") from error

    def check_writable(self, name: str) -> None:
        target = f"{self._path(name)}.{secrets.token_hex(4)}"
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(target, b"")
        with suppress(OSError, NotImplementedError):
            self._fs.rm_file(target)

    def move(self, name: str, new_name: str) -> None:
        target = self._path(new_name)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        move_file(self._fs, self._path(name), target)

    def create(self) -> bool:
        """Create the root, such as a bucket; False if it exists already."""
        if self._fs.exists(self._root):
            return False
        self._fs.makedirs(self._root, exist_ok=True)
        bucket = self._root.partition("/")[0]
        if _speaks(self._fs, "gcs") and not self._fs.exists(bucket):
            # Folders appear there with their files, but a bucket must be created.
            self._fs.mkdir(bucket)
        return True

    def remove(self, path: str) -> None:
        if self._fs.exists(self._path(path)):
            self._fs.rm_file(self._path(path))

    def _path(self, path: str) -> str:
        inner = quote(path) if self._is_web else path
        return f"{self._root.rstrip('/')}/{inner}" if path else str(self._root)

    def _entry(self, path: str, info: Info, named: str = "") -> FileEntry:
        """One file as it was listed; without a known size it cannot be copied whole, and is refused."""
        size = info.get("size")
        if not isinstance(size, int):
            what = joined(self.label, path or named)
            raise TransferError("data_unavailable", f"{what}: its server does not tell how large it is", final=True)
        return FileEntry(path, size, etag=version_of(info))


def _speaks(filesystem: Any, protocol: str) -> bool:
    protocols = filesystem.protocol
    return protocol in ((protocols,) if isinstance(protocols, str) else protocols)


def _is_page(info: Info) -> bool:
    """Whether a web server shows a folder there: the address, after any redirect, ends in a slash."""
    path = urlsplit(str(info.get("url") or info.get("name"))).path
    return not path or path.endswith("/")


def version_of(info: Info) -> str:
    """A file's version: the filesystem's own ETag or hash, else its size and, where known, its time."""
    for key in ("etag", "ETag", "md5Hash", "Last-Modified"):
        if info.get(key):
            return str(info[key]).strip('"')
    at = written_at(info)
    return f"{_size(info):x}" if at is None else file_etag(_size(info), at)


def _size(info: Info) -> int:
    size = info.get("size")
    return size if isinstance(size, int) else 0
