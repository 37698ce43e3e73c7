"""Storage that is read by plain HTTP: Muster's own server; the base of public addresses and of Azure's services."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from typing import Unpack
from urllib.parse import quote, urlsplit

from muster.defaults import PROTOCOL_VERSION
from muster.host.http import Address, Answer, Repeatable
from muster.storage.addresses import joined
from muster.storage.connectors.base import BLOCK_BYTES, PIECE_BYTES, AccessRefused, SourceChanged, TransferError
from muster.storage.connectors.credentials import Keys
from muster.storage.connectors.http import Http
from muster.wire.codec import from_json
from muster.wire.data.access import GRANT_HEADER, HASH_HEADER, FileEntry, FileList
from muster.wire.workspace import VERSION_HEADER

_TOKENS = 3
"""How many are tried for one request: its own, one that another thread has just got, and a fresh one."""
_DATED = "dated:"
"""The prefix of a version that is a date, which cannot be sent as a condition."""


class Web:
    """Files below an address, or the one file that it is (whose path is empty)."""

    _compares = True
    """The service refuses to send another version than the requested one."""

    def __init__(self, url: str, keys: Keys, label: str = "", http: Http | None = None) -> None:
        parts = urlsplit(url)
        self._http = http or Http(Address(url))
        self._base = parts.path
        self._query = parts.query
        self._keys = keys
        self.label = label or f"{self._http.shown}{parts.path}"

    def listing(self, folder: str = "") -> Iterable[FileEntry]:
        raise TransferError("data_unavailable", f"{self._what(folder)}: plain HTTP cannot list a folder")

    def stat(self, path: str) -> FileEntry | None:
        answer = self._call("HEAD", path, allowed=(404, 405, 501))
        if answer.status == 404:
            where = "Check the address; case matters."
            raise TransferError(
                "data_unavailable", f"{self._what(path)}: it is not there (404)", final=True, next=where
            )
        length = answer.headers.get("content-length", "")
        if answer.status >= 300 or not length.isdecimal():
            raise TransferError(
                "data_unavailable", f"{self._what(path)}: its server does not tell how large it is", True
            )
        return FileEntry("", int(length), etag=_version(answer.headers))

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        if not len(view):
            return
        headers = {"Range": f"bytes={offset}-{offset + len(view) - 1}"}
        if self._compares and entry.etag and not entry.etag.startswith(_DATED):
            headers["If-Match"] = f'"{entry.etag}"'
        if offset == 0 and len(view) == entry.size:
            # Servers without ranges can still send a whole file.
            del headers["Range"]
        answer = self._call("GET", entry.path, headers=headers, into=view)
        if entry.etag and _version(answer.headers) != entry.etag:
            raise SourceChanged(self._what(entry.path))
        if "Range" not in headers:
            return
        if answer.status != 206:
            raise TransferError("data_unavailable", f"{self._what(entry.path)}: its server sends no parts of files")
        sent = answer.headers.get("content-range", "")
        if sent and not sent.removeprefix("bytes").strip().startswith(f"{offset}-{offset + len(view) - 1}/"):
            what = (
                f"{self._what(entry.path)}: its server sends another part of the file ({sent[:80]}) than was asked for"
            )
            raise TransferError("data_unavailable", what)

    def has_ranges(self, entry: FileEntry) -> bool:
        """Whether its server sends parts of files: one byte is requested, and the answer's body is not read."""
        with self._opened(entry, {"Range": "bytes=0-0"}) as answer:
            return answer.status != 200

    def whole(self, entry: FileEntry) -> Iterator[bytes]:
        """All of a file from its beginning, for servers that send no parts."""
        with self._opened(entry, {}) as answer:
            if answer.status != 200:
                raise TransferError(
                    "data_unavailable", f"{self._what(entry.path)}: the storage answered {answer.status}"
                )
            if entry.etag and _version({name.lower(): value for name, value in answer.getheaders()}) != entry.etag:
                raise SourceChanged(self._what(entry.path))
            while piece := answer.read(PIECE_BYTES):
                yield piece

    @contextmanager
    def _opened(self, entry: FileEntry, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        what = self._what(entry.path)
        with self._http.opened(self._target(entry.path, "", ""), what, headers) as answer:
            yield answer

    def prefetch(self, paths: list[str]) -> None:
        """Request the tokens of many files at once."""
        self._keys.fetch(paths)

    def _call(self, method: str, path: str, query: str = "", **sent: Unpack[Repeatable]) -> Answer:
        """One request, with a fresh token where the first was refused."""
        headers = sent.get("headers", {})
        for left in reversed(range(_TOKENS)):
            token = self._keys.token(path)
            target = self._target(path, query, token)
            sent["headers"] = {**self._headers(token), **headers}
            try:
                return self._http.request(method, target, self._what(path), **sent)
            except AccessRefused:
                if not left or not self._keys.renew(path, token):
                    raise
        raise AssertionError("unreachable")

    def _target(self, path: str, query: str, token: str) -> str:
        full = f"{self._base.rstrip('/')}/{quote(path)}" if path else self._base
        asked = "&".join(part for part in (self._query, query) if part)
        return f"{full}?{asked}" if asked else full

    def _headers(self, token: str) -> dict[str, str]:
        return {}

    def _what(self, path: str) -> str:
        return joined(self.label, path)


class WritableWeb(Web):
    """What writable services have in common: how a file is looked up, read in pieces and removed."""

    def has_ranges(self, entry: FileEntry) -> bool:
        return True

    def stat(self, path: str) -> FileEntry | None:
        answer = self._call("HEAD", path, allowed=(400, 404, 405))
        if answer.status >= 300 or not self._is_file(answer):
            return None
        return FileEntry("", int(answer.headers["content-length"]), self._hash(answer), _version(answer.headers))

    def known(self, name: str) -> tuple[int, str | None] | None:
        answer = self._call("HEAD", name, allowed=(404,))
        return None if answer.status == 404 else (int(answer.headers["content-length"]), self._hash(answer))

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        entry = self.stat(path)
        if entry is None:
            raise FileNotFoundError(path)
        end = entry.size if length is None else min(entry.size, offset + length)
        for start in range(offset, end, BLOCK_BYTES):
            piece = bytearray(min(BLOCK_BYTES, end - start))
            self.read(replace(entry, path=path), start, memoryview(piece))
            yield bytes(piece)

    def remove(self, path: str) -> None:
        self._call("DELETE", path, allowed=(404,))

    def check_writable(self, name: str) -> None:
        """Try with a small file; where the root is one file, it must not be touched, and is only looked up."""
        self.known(name)
        if name:
            with tempfile.NamedTemporaryFile() as file:
                self.put(name, Path(file.name), 0, hashlib.sha256().hexdigest(), lambda _: None)
            with suppress(AccessRefused):
                self.remove(name)

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        raise NotImplementedError

    def _is_file(self, answer: Answer) -> bool:
        return True

    def _hash(self, answer: Answer) -> str | None:
        raise NotImplementedError


class MusterStore(WritableWeb):
    """A folder or file of the workspace's server, opened by a grant."""

    def listing(self, folder: str = "") -> Iterable[FileEntry]:
        answer = self._call("GET", folder, query="list=1")
        return from_json(FileList, json.loads(answer.body)).files

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        raise TransferError("platform", f"{self._what(path)}: the server is sent files, not pieces")

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        """The server takes it in one piece, and compares the hash."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}

        def pieces() -> Iterator[bytes]:
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
                    moved(len(piece))

        self._call("PUT", name, query=f"sha256={sha256}", headers=headers, body=pieces)

    def move(self, name: str, new_name: str) -> None:
        """The server cannot rename: the caller sends the bytes again."""
        raise TransferError("data_unavailable", f"{self._what(new_name)}: files of the server cannot be renamed")

    def known(self, name: str) -> tuple[int, str | None] | None:
        answer = self._call("HEAD", name, query="hash=1", allowed=(404,))
        return None if answer.status == 404 else (int(answer.headers["content-length"]), self._hash(answer))

    def _hash(self, answer: Answer) -> str | None:
        if found := answer.headers.get(HASH_HEADER.lower()):
            return found
        etag = _version(answer.headers)
        return etag if len(etag) == 64 else None

    def _headers(self, token: str) -> dict[str, str]:
        """Send the grant; without one, the client's own token gives access."""
        return {VERSION_HEADER: str(PROTOCOL_VERSION), **({GRANT_HEADER: token} if token else {})}


def _version(headers: Mapping[str, str]) -> str:
    """A strong ETag without its quotes, or the date of the last change."""
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        return etag.strip('"')
    date = headers.get("last-modified", "")
    return f"{_DATED}{date}" if date else ""
