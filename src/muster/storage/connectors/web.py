"""Storage that is read by plain HTTP: public addresses, Muster's own server; the base of Azure's services."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from muster.defaults import PROTOCOL_VERSION
from muster.storage.connectors.credentials import Keys
from muster.storage.connectors.http import Answer, Http, is_final
from muster.storage.staging.model import AccessRefused, Entry, SourceChanged, TransferError
from muster.wire.node.agents import VERSION_HEADER

_TOKENS = 3
"""As many are tried for one request: its own, one that another thread has just got, and a fresh one."""


class Web:
    """Files below an address, or the one file that it is (whose path is empty)."""

    _compares = True
    """The service refuses to send what is no longer the version that was asked for."""

    def __init__(self, url: str, keys: Keys, label: str = "", http: Http | None = None) -> None:
        parts = urlsplit(url)
        self._http = http or Http(url)
        self._base = parts.path
        self._query = parts.query
        self._keys = keys
        self.label = label or f"{self._http.shown}{parts.path}"

    def listing(self) -> list[Entry]:
        """The one file: plain HTTP cannot list."""
        answer = self._call("HEAD", "", allowed=(404, 405, 501))
        if answer.status == 404:
            raise TransferError("data_unavailable", f"{self.label}: it is not there (404)")
        length = answer.headers.get("content-length")
        if answer.status >= 300 or length is None:
            raise TransferError("data_unavailable", f"{self.label}: its server does not tell how large it is")
        return [Entry("", int(length), _version(answer))]

    def read(self, entry: Entry, offset: int, view: memoryview) -> None:
        if not len(view):
            return
        headers = {"Range": f"bytes={offset}-{offset + len(view) - 1}"}
        if self._compares and entry.version.startswith('"'):
            headers["If-Match"] = entry.version
        if offset == 0 and len(view) == entry.size:
            # Also servers that know no ranges can send a whole file.
            del headers["Range"]
        answer = self._call("GET", entry.path, headers=headers, into=view)
        if entry.version and _version(answer) != entry.version:
            raise SourceChanged(self._what(entry.path))
        if "Range" in headers and answer.status != 206:
            raise TransferError("data_unavailable", f"{self._what(entry.path)}: its server sends no parts of files")

    def prefetch(self, paths: list[str]) -> None:
        """Ask once for the tokens that many files need."""
        self._keys.fetch(paths)

    def _call(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        into: memoryview | None = None,
        allowed: Iterable[int] = (),
    ) -> Answer:
        """One request, with a fresh token where the first was refused."""
        for left in reversed(range(_TOKENS)):
            token = self._keys.token(path)
            target = self._target(path, query, token)
            sent = {**self._headers(token), **(headers or {})}
            try:
                return self._http.request(method, target, self._what(path), sent, body, into, allowed)
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
        return f"{self.label.rstrip('/')}/{path}" if path else self.label


class MusterStore(Web):
    """A folder or file of the workspace's server, opened by a grant."""

    def listing(self) -> list[Entry]:
        answer = self._call("GET", "", query="list=1")
        return [
            Entry(item["path"], item["size"], f'"{item["etag"]}"' if item.get("etag") else "", item.get("sha256"))
            for item in json.loads(answer.body)["files"]
        ]

    def known(self, name: str) -> tuple[int, str | None] | None:
        answer = self._call("HEAD", name, allowed=(404,))
        if answer.status == 404:
            return None
        etag = answer.headers.get("etag", "").strip('"')
        return int(answer.headers["content-length"]), etag if len(etag) == 64 else None

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        """The server takes it whole, and compares the hash."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        target = f"sha256={sha256}"
        with path.open("rb") as file:
            self._stream(name, target, headers, lambda: _pieces(file, moved))

    def move(self, name: str, new_name: str) -> None:
        """The server knows no renaming: its bytes are sent again by the caller."""
        raise TransferError("data_unavailable", f"{self._what(new_name)}: files of the server cannot be renamed")

    def remove(self, name: str) -> None:
        self._call("DELETE", name, allowed=(404,))

    def _stream(self, name: str, query: str, headers: dict[str, str], pieces: Callable[[], Iterator[bytes]]) -> None:
        for left in reversed(range(_TOKENS)):
            token = self._keys.token(name)
            sent = {**self._headers(token), **headers}
            answer = self._http.send_stream("PUT", self._target(name, query, token), self._what(name), sent, pieces)
            if answer.status < 300:
                return
            if answer.status not in (401, 403) or not left or not self._keys.renew(name, token):
                code, said = answer.refusal
                heard = f"{answer.status} {responses.get(answer.status, '')}: {said}"
                text = f"{self._what(name)}: the server answered {heard}"
                raise TransferError("data_unavailable", text, is_final(answer.status, code, said))

    def _headers(self, token: str) -> dict[str, str]:
        return {"Muster-Grant": token, VERSION_HEADER: str(PROTOCOL_VERSION)}


def _pieces(file: Any, moved: Callable[[int], None]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(1 << 20):
        yield piece
        moved(len(piece))


def _version(answer: Answer) -> str:
    etag = answer.headers.get("etag", "")
    return etag if etag.startswith('"') else answer.headers.get("last-modified", "")


def check_unchanged(path: Path, found: str, wanted: str) -> None:
    """Refuse to store what is no longer what was announced."""
    if found != wanted:
        raise SourceChanged(str(path))


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
