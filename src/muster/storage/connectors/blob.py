"""Azure Blob and Azure Files by their REST interfaces and a SAS: a node needs no library for them."""

from __future__ import annotations

import base64
import hashlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

from muster.storage.connectors.web import Web, check_unchanged, hash_of
from muster.storage.staging.model import BLOCK_BYTES, Entry, TransferError

_VERSION = "2021-12-02"
_PUT_CONNECTIONS = 4
_RANGE_BYTES = 4 << 20


class _Azure(Web):
    """What Azure's services have in common: the SAS, the version, what is remembered of a file."""

    def known(self, name: str) -> tuple[int, str | None] | None:
        answer = self._call("HEAD", name, allowed=(404,))
        if answer.status == 404:
            return None
        return int(answer.headers["content-length"]), answer.headers.get("x-ms-meta-sha256")

    def remove(self, name: str) -> None:
        self._call("DELETE", name, allowed=(404,))

    def _verify(self, name: str, size: int, sha256: str) -> None:
        if self.known(name) != (size, sha256):
            raise TransferError("data_unavailable", f"{self._what(name)}: what was stored is not what was sent")

    def _target(self, path: str, query: str, token: str) -> str:
        target = super()._target(path, query, "")
        if not token:
            return target
        return f"{target}&{token}" if "?" in target else f"{target}?{token}"

    def _headers(self, token: str) -> dict[str, str]:
        return {"x-ms-version": _VERSION}


class Blob(_Azure):
    """A folder or one blob of a container."""

    def listing(self) -> list[Entry]:
        """By a token for the container; elsewhere the server lists."""
        head = self._call("HEAD", "", allowed=(400, 404))
        if (
            head.status < 300
            and "x-ms-blob-type" in head.headers
            and head.headers.get("x-ms-meta-hdi_isfolder") != "true"
        ):
            return [Entry("", int(head.headers["content-length"]), head.headers["etag"])]
        return list(self._below())

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        headers = {"x-ms-meta-sha256": sha256}
        if size <= BLOCK_BYTES:
            data = path.read_bytes()
            check_unchanged(path, hashlib.sha256(data).hexdigest(), sha256)
            sent = {**headers, "x-ms-blob-type": "BlockBlob", "Content-MD5": _md5(data)}
            self._call("PUT", name, headers=sent, body=data)
            moved(size)
        else:
            blocks = self._put_blocks(name, path, size, sha256, moved)
            check_unchanged(path, hash_of(path), sha256)
            listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
            body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
            self._call("PUT", name, query="comp=blocklist", headers=headers, body=body)
        self._verify(name, size, sha256)

    def move(self, name: str, new_name: str) -> None:
        """The service copies within itself."""
        source = f"{self._http.shown}{self._target(name, '', self._keys.token(name))}"
        answer = self._call("PUT", new_name, headers={"x-ms-copy-source": source})
        if answer.headers.get("x-ms-copy-status") != "success":
            raise TransferError("data_unavailable", f"{self._what(new_name)}: the storage did not copy it at once")
        self.remove(name)

    def _put_blocks(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> list[str]:
        """Send what is not there yet, several blocks at once; a block's name says whose content it is."""
        count = -(-size // BLOCK_BYTES)
        blocks = [base64.b64encode(f"{sha256[:24]}{index:06d}".encode()).decode() for index in range(count)]
        there = self._uncommitted(name)

        def send(index: int) -> None:
            with path.open("rb") as file:
                file.seek(index * BLOCK_BYTES)
                data = file.read(BLOCK_BYTES)
            if there.get(blocks[index]) != len(data):
                query = f"comp=block&blockid={quote(blocks[index], safe='')}"
                self._call("PUT", name, query=query, headers={"Content-MD5": _md5(data)}, body=data)
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

    def _below(self) -> Iterator[Entry]:
        container, prefix = self._split()
        marker = ""
        while True:
            query = f"restype=container&comp=list&maxresults=5000&prefix={quote(prefix, safe='')}"
            query += f"&marker={quote(marker, safe='')}" if marker else ""
            target = f"{container}?{query}&{self._keys.token('')}"
            answer = self._http.request("GET", target, self.label, self._headers(""))
            root = ElementTree.fromstring(answer.body)
            for item in root.iter("Blob"):
                name = _text(item, "Name")
                if not name.endswith("/"):
                    etag = _text(item, "Properties/Etag").strip('"')
                    size = int(_text(item, "Properties/Content-Length"))
                    yield Entry(name.removeprefix(prefix), size, f'"{etag}"')
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return

    def _split(self) -> tuple[str, str]:
        """The container's address and the folder in it; by an address instead of a name the account comes first."""
        steps = self._base.strip("/").split("/")
        depth = 1 if ".blob." in self._http.shown else 2
        prefix = unquote("/".join(steps[depth:]))
        return "/" + "/".join(steps[:depth]), f"{prefix}/" if prefix else ""


class Share(_Azure):
    """A folder or one file of an Azure Files share; the server lists it."""

    _compares = False

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        self._make_folders(name)
        check_unchanged(path, hash_of(path), sha256)
        headers = {
            "x-ms-type": "file",
            "x-ms-content-length": str(size),
            "x-ms-file-attributes": "None",
            "x-ms-file-permission": "inherit",
            "x-ms-file-creation-time": "now",
            "x-ms-file-last-write-time": "now",
        }
        self._call("PUT", name, headers=headers)
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

    def _make_folders(self, name: str) -> None:
        steps = name.split("/")[:-1]
        for depth in range(1, len(steps) + 1):
            folder = "/".join(steps[:depth])
            headers = {
                "x-ms-file-attributes": "Directory",
                "x-ms-file-permission": "inherit",
                "x-ms-file-creation-time": "now",
                "x-ms-file-last-write-time": "now",
            }
            self._call("PUT", folder, query="restype=directory", headers=headers, allowed=(409,))


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _text(item: ElementTree.Element, path: str) -> str:
    return item.findtext(path) or ""
