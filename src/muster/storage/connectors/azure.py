"""Azure Blob and Azure Files by their REST interfaces, with a SAS or a bearer token: no library is needed."""

from __future__ import annotations

import base64
import hashlib
import secrets
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

from muster.host.files import UNFINISHED
from muster.host.hashing import sha256_of
from muster.host.http import Answer
from muster.storage.connectors.base import BLOCK_BYTES, TransferError, check_unchanged
from muster.storage.connectors.web import WritableWeb
from muster.store.pieces import HashedPieces
from muster.wire.data.access import FileEntry

_VERSION = "2021-12-02"
_PUT_CONNECTIONS = 4
_RANGE_BYTES = 4 << 20
_NEW_IN_SHARE = {
    "x-ms-file-permission": "inherit",
    "x-ms-file-creation-time": "now",
    "x-ms-file-last-write-time": "now",
}

BEARER = "Bearer "
"""The prefix of a token that is sent as a header; any other token is a SAS."""


class _Azure(WritableWeb):
    """What Azure's services have in common: the token, the API version, a file's stored hash."""

    def _verify(self, name: str, size: int, sha256: str) -> None:
        if self.known(name) != (size, sha256):
            raise TransferError("data_unavailable", f"{self._what(name)}: what was stored is not what was sent")

    def _target(self, path: str, query: str, token: str) -> str:
        return _signed(super()._target(path, query, ""), token)

    def _headers(self, token: str) -> dict[str, str]:
        bearer = {"Authorization": token} if token.startswith(BEARER) else {}
        return {"x-ms-version": _VERSION, **bearer}

    def _hash(self, answer: Answer) -> str | None:
        return answer.headers.get("x-ms-meta-sha256")

    def _split(self, service: str) -> tuple[str, str]:
        """The container's path and the folder in it; where the host does not name the account, the path does."""
        steps = self._base.strip("/").split("/")
        depth = 1 if f".{service}." in self._http.shown else 2
        return "/" + "/".join(steps[:depth]), unquote("/".join(steps[depth:]))

    def _pages(self, base: str, query: str, headers: Mapping[str, str]) -> Iterator[ElementTree.Element]:
        """The pages of a listing, with the token for the whole store."""
        marker = ""
        while True:
            asked = f"{base}?{query}" + (f"&marker={quote(marker, safe='')}" if marker else "")
            token = self._keys.token("")
            sent = {**self._headers(token), **headers}
            answer = self._http.request("GET", _signed(asked, token), self.label, headers=sent)
            page = ElementTree.fromstring(answer.body)
            yield page
            marker = page.findtext("NextMarker") or ""
            if not marker:
                return


class Blob(_Azure):
    """A folder or one blob of a container."""

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        container, above = self._split("blob")
        prefix = "".join(f"{part}/" for part in (above, folder) if part)
        query = f"restype=container&comp=list&maxresults=5000&prefix={quote(prefix, safe='')}"
        for page in self._pages(container, query, {}):
            for item in page.iter("Blob"):
                name, size = _text(item, "Name"), int(_text(item, "Properties/Content-Length") or 0)
                # A hierarchical account lists its folders too.
                if not name.endswith("/") and _text(item, "Properties/ResourceType") != "directory":
                    yield FileEntry(name.removeprefix(prefix), size, etag=_text(item, "Properties/Etag").strip('"'))

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """Send block after block; the blob appears once the last request commits them all."""
        headers = {"x-ms-meta-sha256": sha256} if sha256 else {}
        if fresh:
            headers["If-None-Match"] = "*"
        taken = (409, 412) if fresh else ()
        series, blocks = secrets.token_hex(12), list[str]()
        with HashedPieces(pieces) as hashed:
            last = b""
            for block in _blocks(hashed):
                if last:
                    blocks.append(self._put_block(path, _block_id(series, len(blocks)), last))
                last = block
            hashed.verify(path, sha256)
        if blocks:
            blocks.append(self._put_block(path, _block_id(series, len(blocks)), last))
            answer = self._name_blocks(path, blocks, headers, taken)
        else:
            answer = self._put_whole(path, last, headers, taken)
        if answer.status >= 300:
            raise FileExistsError(path)
        return hashed.size

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        headers = {"x-ms-meta-sha256": sha256}
        if size <= BLOCK_BYTES:
            data = path.read_bytes()
            check_unchanged(path, hashlib.sha256(data).hexdigest(), sha256)
            self._put_whole(name, data, headers)
            moved(size)
        else:
            blocks = self._put_blocks(name, path, size, sha256, moved)
            check_unchanged(path, sha256_of(path), sha256)
            self._name_blocks(name, blocks, headers)
        self._verify(name, size, sha256)

    def check_writable(self, name: str) -> None:
        """Send a block that is never committed: nobody sees it, and the service drops it after a week."""
        self.known(name)
        self._put_block(name, _block_id(secrets.token_hex(12), 0), b"muster")

    def move(self, name: str, new_name: str) -> None:
        """The service makes the copy itself."""
        source = f"{self._http.shown}{self._target(name, '', self._keys.token(name))}"
        answer = self._call("PUT", new_name, headers={"x-ms-copy-source": source})
        if answer.headers.get("x-ms-copy-status") != "success":
            raise TransferError("data_unavailable", f"{self._what(new_name)}: the storage did not copy it at once")
        self.remove(name)

    def _put_blocks(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> list[str]:
        """Send the missing blocks, several at once; a block's ID comes from its file's hash and its position."""
        count = -(-size // BLOCK_BYTES)
        blocks = [_block_id(sha256[:24], index) for index in range(count)]
        there = self._uncommitted(name)

        def send(index: int) -> None:
            with path.open("rb") as file:
                file.seek(index * BLOCK_BYTES)
                data = file.read(BLOCK_BYTES)
            if there.get(blocks[index]) != len(data):
                self._put_block(name, blocks[index], data)
            moved(len(data))

        with ThreadPoolExecutor(_PUT_CONNECTIONS) as pool:
            list(pool.map(send, range(count)))
        return blocks

    def _uncommitted(self, name: str) -> dict[str, int]:
        answer = self._call("GET", name, query="comp=blocklist&blocklisttype=uncommitted", allowed=(403, 404))
        if answer.status != 200:
            return {}
        blocks = ElementTree.fromstring(answer.body).iter("Block")
        return {_text(item, "Name"): int(_text(item, "Size")) for item in blocks}

    def _put_whole(self, name: str, data: bytes, headers: Mapping[str, str], allowed: tuple[int, ...] = ()) -> Answer:
        sent = {**headers, "x-ms-blob-type": "BlockBlob", "Content-MD5": _md5(data)}
        return self._call("PUT", name, headers=sent, body=data, allowed=allowed)

    def _put_block(self, name: str, block: str, data: bytes) -> str:
        query = f"comp=block&blockid={quote(block, safe='')}"
        self._call("PUT", name, query=query, headers={"Content-MD5": _md5(data)}, body=data)
        return block

    def _name_blocks(
        self, name: str, blocks: list[str], headers: Mapping[str, str], allowed: tuple[int, ...] = ()
    ) -> Answer:
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
        return self._call("PUT", name, query="comp=blocklist", headers=headers, body=body, allowed=allowed)

    def _is_file(self, answer: Answer) -> bool:
        return "x-ms-blob-type" in answer.headers and answer.headers.get("x-ms-meta-hdi_isfolder") != "true"


class Share(_Azure):
    """A folder or one file of an Azure Files share."""

    _compares = False

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        share, above = self._split("file")
        yield from self._below(f"{share}/{quote(above)}".rstrip("/"), folder, "")

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """A file share has no atomic upload, so the file gets its name only when it is complete."""
        if fresh and self.stat(path) is not None:
            raise FileExistsError(path)
        part = f"{path}{UNFINISHED}muster"
        with HashedPieces(pieces) as hashed, tempfile.NamedTemporaryFile() as spool:
            # Its size must be known before the first byte.
            for piece in hashed:
                spool.write(piece)
            hashed.verify(path, sha256)
            spool.flush()
            self.put(part, Path(spool.name), hashed.size, sha256 or sha256_of(Path(spool.name)), lambda _: None)
        self.move(part, path)
        return hashed.size

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        self._make_folders(name)
        check_unchanged(path, sha256_of(path), sha256)
        headers = {"x-ms-type": "file", "x-ms-content-length": str(size), "x-ms-file-attributes": "None"}
        self._call("PUT", name, headers={**headers, **_NEW_IN_SHARE})
        with path.open("rb") as file:
            for offset in range(0, size, _RANGE_BYTES):
                data = file.read(_RANGE_BYTES)
                sent = {"x-ms-range": f"bytes={offset}-{offset + len(data) - 1}", "x-ms-write": "update"}
                self._call("PUT", name, query="comp=range", headers={**sent, "Content-MD5": _md5(data)}, body=data)
                moved(len(data))
        # The hash comes last, so that a file without one is known to be unfinished.
        self._call("PUT", name, query="comp=metadata", headers={"x-ms-meta-sha256": sha256})
        self._verify(name, size, sha256)

    def move(self, name: str, new_name: str) -> None:
        self._make_folders(new_name)
        source = f"{self._http.shown}{self._target(name, '', self._keys.token(name))}"
        headers = {"x-ms-file-rename-source": source, "x-ms-file-rename-replace-if-exists": "true"}
        self._call("PUT", new_name, query="comp=rename", headers=headers)

    def _below(self, base: str, folder: str, above: str) -> Iterator[FileEntry]:
        here = "/".join(part for part in (base, quote(folder)) if part)
        query = "restype=directory&comp=list&maxresults=5000&include=Etag"
        for page in self._pages(here, query, {"x-ms-file-extended-info": "true"}):
            for item in page.iter("File"):
                etag, size = _text(item, "Properties/Etag").strip('"'), int(_text(item, "Properties/Content-Length"))
                yield FileEntry(f"{above}{_text(item, 'Name')}", size, etag=etag or None)
            for item in page.iter("Directory"):
                name = _text(item, "Name")
                yield from self._below(here, name, f"{above}{name}/")

    def _make_folders(self, name: str) -> None:
        steps = name.split("/")[:-1]
        headers = {"x-ms-file-attributes": "Directory", **_NEW_IN_SHARE}
        for depth in range(1, len(steps) + 1):
            folder = "/".join(steps[:depth])
            self._call("PUT", folder, query="restype=directory", headers=headers, allowed=(409,))


def _signed(target: str, token: str) -> str:
    if not token or token.startswith(BEARER):
        return target
    return f"{target}&{token}" if "?" in target else f"{target}?{token}"


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _text(item: ElementTree.Element, path: str) -> str:
    return item.findtext(path) or ""


def _block_id(series: str, number: int) -> str:
    return base64.b64encode(f"{series}{number:06d}".encode()).decode()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, cut into blocks of the size of one request."""
    kept = bytearray()
    for piece in pieces:
        kept += piece
        while len(kept) >= BLOCK_BYTES:
            yield bytes(kept[:BLOCK_BYTES])
            del kept[:BLOCK_BYTES]
    if kept:
        yield bytes(kept)
