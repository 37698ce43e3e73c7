"""Calls about datastores, data assets, secrets and what may be removed; files to and from datastores."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from muster.client.api import Client
from muster.errors import Conflict, JobError, MusterError, NotFound
from muster.host.files import is_safe_path
from muster.storage.addresses import check_asset_name, datastore_address, parse_address

_PIECE_BYTES = 1 << 20
_AT_ONCE = 4

Progress = Callable[[int], None]


class Storage:
    """What a client does with stored data."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # Datastores

    def datastores(self) -> list[dict[str, Any]]:
        return self._client.get_list("/datastores")

    def datastore(self, name: str) -> dict[str, Any]:
        return self._dict("GET", f"/datastores/{name}")

    def create_datastore(self, datastore: Mapping[str, Any], replace: bool = False) -> dict[str, Any]:
        """{name, kind, options, credential}; the credential is never given back."""
        return self._dict(
            "POST", "/datastores", json_body=dict(datastore), query={"replace": int(replace)}, again=False
        )

    def test_datastore(self, name: str, write: bool = True) -> list[str]:
        """What works, in words."""
        answer = self._client.call("POST", f"/datastores/{name}/test", json_body={"write": write}, timeout_s=120.0)
        return list(answer["works"])

    def delete_datastore(self, name: str) -> None:
        self._client.call("DELETE", f"/datastores/{name}")

    def grant(self, address: str, scope: str, folder: bool, lifetime_s: float) -> dict[str, Any]:
        """A grant to one file or folder; its token is seen only now."""
        body = {"address": address, "scope": scope, "folder": folder, "lifetime_s": lifetime_s}
        return self._dict("POST", "/grants", json_body=body, again=False)

    def grants(self) -> list[dict[str, Any]]:
        return self._client.get_list("/grants")

    def revoke(self, grant_id: str) -> None:
        self._client.call("DELETE", f"/grants/{grant_id}")

    # Files of datastores

    def files(self, store: str, path: str = "") -> list[dict[str, Any]]:
        """{path, size, etag} of every file below a folder."""
        return list(self._client.call("GET", _data(store, path), query={"list": 1}, timeout_s=600.0)["files"])

    def is_file(self, store: str, path: str) -> bool:
        """Whether one file lies at a path of a datastore; nothing else is listed for that."""
        answer = self._client.call("GET", _data(store, path), query={"list": 1, "only": "file"}, timeout_s=120.0)
        return bool(answer["files"])

    def upload(
        self, source: Path, store: str, path: str, progress: Progress | None = None, fresh: bool = False
    ) -> list[dict[str, Any]]:
        """A file, or all files below a folder, into a datastore; {path, size, sha256} of each."""
        found = list(local_files(source))
        if not found:
            raise NotFound(f"there is no file in {source}", "Give a file, or a folder that holds some.")
        sent: list[dict[str, Any]] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, entry in zip(
                found, pool.map(lambda item: self._send(item, store, path, fresh, progress), found), strict=True
            ):
                sent.append({"path": name[0], **entry})
        return sent

    def download(
        self,
        route: str,
        files: Sequence[Mapping[str, Any]],
        target: Path,
        progress: Progress | None = None,
        expect: Progress | None = None,
    ) -> list[Path]:
        """Files below a route of the server into a folder; verified where their hashes are known.

        `expect` is told once how many bytes will come.
        """
        if expect is not None:
            expect(sum(entry["size"] for entry in files))
        wanted = [(entry, _place(target, entry["path"])) for entry in files]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda item: self._fetch(route, item[0], item[1], progress), wanted))

    def download_place(
        self,
        store: str,
        path: str,
        target: Path,
        progress: Progress | None = None,
        expect: Progress | None = None,
    ) -> list[Path]:
        """A file, or all files below a folder of a datastore, into a folder; raises NotFound where there is none."""
        found = self.files(store, path)
        if not found:
            raise NotFound(
                f"{datastore_address(store, path)}: there is no file or folder", "Check the path; case matters."
            )
        if not found[0]["path"]:
            found = [{**found[0], "path": path.rpartition("/")[2], "route": ""}]
        return self.download(_data(store, path), found, target, progress, expect)

    # Data assets

    def assets(self, name: str | None = None) -> list[dict[str, Any]]:
        return self._client.get_list("/assets", {"name": name})

    def asset(self, name: str, version: str | None = None) -> dict[str, Any]:
        """One version of a data asset; the newest unless a version is given."""
        return self._dict("GET", f"/assets/{check_asset_name(name)}", query={"version": version})

    def create_asset(self, asset: Mapping[str, Any]) -> dict[str, Any]:
        """{name, version, type, address, description, tags, files}"""
        return self._dict("POST", "/assets", json_body=dict(asset), again=False, timeout_s=600.0)

    def manifest(self, name: str, version: str | None = None) -> list[dict[str, Any]]:
        """The files of a data asset: {path, size, sha256, etag}."""
        return list(self._client.call("GET", f"/assets/{name}/manifest", query={"version": version})["files"])

    def upload_asset(
        self, source: Path, asset: Mapping[str, Any], store: str, progress: Progress | None = None
    ) -> dict[str, Any]:
        """A local file or folder as the next version of a data asset, in a place of its own."""
        self._check_free(source, asset)
        place = f"assets/{asset['name']}/{os.urandom(6).hex()}"
        files = self.upload(source, store, place, progress)
        address = datastore_address(store, f"{place}/{files[0]['path']}" if source.is_file() else place)
        told = [{**entry, "path": "" if source.is_file() else entry["path"]} for entry in files]
        kind = asset.get("type") or ("uri_file" if source.is_file() else "uri_folder")
        return self.create_asset({**asset, "type": kind, "address": address, "files": told})

    def _check_free(self, source: Path, asset: Mapping[str, Any]) -> None:
        """Refuse before anything is sent what would be refused when everything has been sent."""
        name, version, kind = check_asset_name(asset["name"]), asset.get("version"), asset.get("type")
        if kind and source.exists() and source.is_file() != (kind == "uri_file"):
            is_now = "a file" if source.is_file() else "a folder"
            raise JobError(f"{source} is {is_now}, and the type given is {kind}", "Leave the type out.")
        if not version:
            return
        try:
            self.asset(name, version)
        except NotFound:
            return
        raise Conflict(
            f"the data asset {name}:{version} exists, and what exists never changes",
            "Leave the version out for the next one.",
        )

    def download_asset(
        self,
        name: str,
        version: str | None,
        target: Path,
        progress: Progress | None = None,
        expect: Progress | None = None,
    ) -> tuple[dict[str, Any], list[Path]]:
        """A data asset into a folder, every file verified."""
        asset = self.asset(name, version)
        files = self.manifest(name, asset["version"])
        if asset["type"] == "uri_file":
            last = str(parse_address(asset["address"]).path or asset["address"]).rstrip("/").rpartition("/")[2]
            files = [{**files[0], "path": last, "route": ""}]
        route = f"/assets/{name}/versions/{asset['version']}/files"
        return asset, self.download(route, files, target, progress, expect)

    # Secrets, retention

    def secrets(self) -> list[dict[str, Any]]:
        """Names and dates; no call gives a value back."""
        return self._client.get_list("/secrets")

    def set_secret(self, name: str, value: str) -> None:
        self._client.call("PUT", f"/secrets/{name}", json_body={"value": value})

    def remove_secret(self, name: str) -> None:
        self._client.call("DELETE", f"/secrets/{name}")

    def collect(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Remove what nothing refers to; with `dry_run` only tell what that is."""
        return self._dict("POST", "/gc", json_body=dict(options), again=False, timeout_s=600.0)

    def _dict(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.call(method, path, **request)
        return answer

    def _send(
        self, item: tuple[str, Path], store: str, folder: str, fresh: bool, progress: Progress | None
    ) -> dict[str, Any]:
        name, file = item
        digest, size = measure(file)
        target = "/".join(part for part in (folder, name) if part)
        headers = {"If-None-Match": "*"} if fresh else {}
        with file.open("rb") as body:
            self._client.call(
                "PUT",
                _data(store, target),
                body=body.read() if size <= _PIECE_BYTES else _pieces(body, progress),
                query={"sha256": digest},
                headers=headers,
                again=size <= _PIECE_BYTES,
                timeout_s=600.0,
            )
        if progress is not None and size <= _PIECE_BYTES:
            progress(size)
        return {"size": size, "sha256": digest}

    def _fetch(self, route: str, entry: Mapping[str, Any], target: Path, progress: Progress | None) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        part = Path(scratch)
        try:
            with os.fdopen(descriptor, "wb") as out:
                self._client.fetch("/".join(p for p in (route, entry.get("route", entry["path"])) if p), out, progress)
            found, _ = measure(part)
            if entry.get("sha256") and found != entry["sha256"]:
                raise MusterError(
                    f"{entry['path']} is not what it was: sha256 {found}, {entry['sha256']} is known",
                    "Something wrote to its place: make a new version of it.",
                )
            part.chmod(0o644)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return target


def local_files(source: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder by their paths from there, or the file itself by its name."""
    if source.is_file():
        yield source.name, source
    elif source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                yield path.relative_to(source).as_posix(), path
    else:
        raise NotFound(f"there is no file or folder {source}", "Correct the path.")


def measure(file: Path) -> tuple[str, int]:
    """A file's hash and size."""
    with file.open("rb") as body:
        digest = hashlib.file_digest(body, "sha256")
        return digest.hexdigest(), body.tell()


def _pieces(body: Any, progress: Progress | None) -> Iterator[bytes]:
    while piece := body.read(_PIECE_BYTES):
        yield piece
        if progress is not None:
            progress(len(piece))


def _place(target: Path, name: str) -> Path:
    if not is_safe_path(name):
        raise JobError(f"the file {name!r} would be written outside {target}", "Nothing was downloaded.")
    return target / name


def _data(store: str, path: str) -> str:
    return f"/data/{store}/{path}".rstrip("/")
