"""Calls about datastores, grants and data assets; transfer of files to and from datastores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from muster.client.calls import LONG_S, PIECE_BYTES, Group, Progress, Query, checking, segment, unwatched
from muster.errors import Conflict, JobError, NotFound
from muster.host.files import is_safe_path
from muster.host.hashing import measure
from muster.storage.addresses import check_asset_name, datastore_address, parse_address
from muster.wire.data.access import (
    FileEntry,
    FileList,
    GrantView,
    HashedFile,
    IssuedGrant,
    NewAccess,
    NewGrant,
    OpenedAccess,
    Scope,
    Use,
)
from muster.wire.data.assets import AssetChange, AssetUses, AssetView, NewAsset, digest_of
from muster.wire.data.datastores import DatastoreTest, DatastoreTestResult, DatastoreView, NewDatastore

_TEST_S = 120.0
_AT_ONCE = 4


@dataclass(frozen=True)
class _Download:
    """One file to fetch: where the server has it, and its name below the target folder."""

    route: str
    name: str
    size: int
    sha256: str | None


class Storage(Group):
    """What a client does with stored data."""

    # Datastores

    def datastores(self) -> list[DatastoreView]:
        return list(self.calls.each(DatastoreView, "/datastores"))

    def datastore(self, name: str) -> DatastoreView:
        return self.calls.read(DatastoreView, "GET", f"/datastores/{name}")

    def create_datastore(self, datastore: NewDatastore, replace: bool = False) -> DatastoreView:
        """Register storage under a name; its credential is never returned."""
        query = {"replace": int(replace)}
        return self.calls.read(DatastoreView, "POST", "/datastores", message=datastore, query=query, again=False)

    def test_datastore(self, name: str, write: bool = True) -> tuple[str, ...]:
        """What works, in words."""
        path = f"/datastores/{name}/test"
        return self.calls.read(DatastoreTestResult, "POST", path, message=DatastoreTest(write), timeout_s=_TEST_S).works

    def delete_datastore(self, name: str) -> None:
        self.calls.send("DELETE", f"/datastores/{name}")

    # Grants

    def grant(self, address: str, scope: Scope, folder: bool, lifetime_s: float) -> IssuedGrant:
        """Create a grant to one file or folder; its token is shown only now."""
        with checking():
            wanted = NewGrant(address, scope, folder, lifetime_s)
        return self.calls.read(IssuedGrant, "POST", "/grants", message=wanted, again=False)

    def grants(self) -> list[GrantView]:
        return list(self.calls.each(GrantView, "/grants"))

    def revoke(self, grant_id: str) -> None:
        self.calls.send("DELETE", f"/grants/{grant_id}")

    def open_access(self, use: Use, wanted: NewAccess) -> OpenedAccess:
        """The caller's own access to a folder, directly to the storage where possible."""
        return self.calls.read(OpenedAccess, "POST", f"/access/{use}", message=wanted)

    # Files of datastores

    def files(self, store: str, path: str = "", limit: int | None = None) -> tuple[FileEntry, ...]:
        """Every file below a folder, or the first few; a file itself has an empty path."""
        return self.listing(store, path, limit).files

    def listing(self, store: str, path: str = "", limit: int | None = None) -> FileList:
        """The same, with what is left out."""
        query: Query = {"list": 1, "limit": limit}
        return self.calls.read(FileList, "GET", _data(store, path), query=query, timeout_s=LONG_S)

    def is_file(self, store: str, path: str) -> bool:
        """Whether there is a file at a path of a datastore, without listing anything else."""
        query: Query = {"list": 1, "only": "file"}
        return bool(self.calls.read(FileList, "GET", _data(store, path), query=query, timeout_s=_TEST_S).files)

    def upload(
        self, source: Path, store: str, path: str, progress: Progress = unwatched, fresh: bool = False
    ) -> list[HashedFile]:
        """Upload a file, or all files below a folder, to a datastore."""
        found = list(local_files(source))
        if not found:
            raise NotFound(f"there is no file in {source}", "Give a file, or a folder that holds some.")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda item: self._send(item[0], item[1], store, path, fresh, progress), found))

    def download(self, store: str, files: Sequence[FileEntry], target: Path) -> list[Path]:
        """Download files of a datastore, by their paths from its root, into a folder."""
        return self._download([_Download(_data(store, e.path), e.path, e.size, e.sha256) for e in files], target)

    def download_path(
        self,
        store: str,
        path: str,
        target: Path,
        progress: Progress = unwatched,
        expect: Progress = unwatched,
    ) -> list[Path]:
        """Download a file, or all files below a folder of a datastore; raises NotFound where there is none.

        `expect` is called once with the number of bytes to come.
        """
        found = self.files(store, path)
        if not found:
            raise NotFound(
                f"{datastore_address(store, path)}: there is no file or folder", "Check the path; case matters."
            )
        return self._download(_below(_data(store, path), found, path), target, progress, expect)

    # Data assets

    def assets(self, name: str | None = None, archived: bool = False) -> list[AssetView]:
        return list(self.calls.each(AssetView, "/assets", {"name": name, "archived": int(archived)}))

    def archive_asset(self, name: str, version: str, archived: bool) -> AssetView:
        """Hide a version from lists and from `latest`, or show it again."""
        path = _asset_path(name, version)
        return self.calls.read(AssetView, "PATCH", path, message=AssetChange(archived))

    def delete_asset(self, name: str, version: str) -> AssetUses:
        """Delete a version that no active run uses."""
        return self.calls.read(AssetUses, "DELETE", _asset_path(name, version), again=False)

    def asset_uses(self, name: str, version: str) -> AssetUses:
        """The runs that have a version as an input."""
        return self.calls.read(AssetUses, "GET", f"{_asset_path(name, version)}/uses")

    def asset(self, name: str, version: str | None = None) -> AssetView:
        """One version of a data asset; the newest unless a version is given."""
        path = f"/assets/{check_asset_name(name)}"
        return self.calls.read(AssetView, "GET", path, query={"version": version})

    def create_asset(self, asset: NewAsset) -> AssetView:
        return self.calls.read(AssetView, "POST", "/assets", message=asset, again=False, timeout_s=LONG_S)

    def manifest(self, name: str, version: str | None = None) -> tuple[FileEntry, ...]:
        """The files of a data asset."""
        return self.calls.read(FileList, "GET", f"/assets/{name}/manifest", query={"version": version}).files

    def upload_asset(self, source: Path, asset: NewAsset, store: str, progress: Progress = unwatched) -> AssetView:
        """Register a local file or folder as the next version of a data asset, in a folder of its own.

        The address of `asset` is empty: it is determined here.
        """
        _check_kind(source, asset)
        known = self._known(asset)
        if known is not None and _holds(known, source, asset):
            return known
        if known is not None and asset.version is not None:
            raise Conflict(
                f"the data asset {asset.name}:{asset.version} exists with other data, and what exists never changes",
                "Leave the version out for the next one.",
            )
        folder = f"assets/{asset.name}/{os.urandom(6).hex()}"
        files = self.upload(source, store, folder, progress)
        is_file = source.is_file()
        return self.create_asset(
            replace(
                asset,
                type=asset.type or ("uri_file" if is_file else "uri_folder"),
                address=datastore_address(store, f"{folder}/{files[0].path}" if is_file else folder),
                files=(replace(files[0], path=""),) if is_file else tuple(files),
            )
        )

    def _known(self, asset: NewAsset) -> AssetView | None:
        """The version that is named, otherwise the newest: the same data again is that one."""
        try:
            return self.asset(asset.name, asset.version)
        except NotFound:
            return None

    def download_asset(
        self,
        name: str,
        version: str | None,
        target: Path,
        progress: Progress = unwatched,
        expect: Progress = unwatched,
    ) -> tuple[AssetView, list[Path]]:
        """Download a data asset into a folder, every file verified."""
        asset = self.asset(name, version)
        files = self.manifest(name, asset.version)
        if asset.type == "uri_file":
            files = (replace(files[0], path=""),)
        route = f"/assets/{name}/versions/{asset.version}/files"
        address = str(parse_address(asset.address).path or asset.address)
        return asset, self._download(_below(route, files, address), target, progress, expect)

    def _send(self, name: str, file: Path, store: str, folder: str, fresh: bool, progress: Progress) -> HashedFile:
        digest, size = measure(file)
        with file.open("rb") as body:
            self.calls.send(
                "PUT",
                _data(store, "/".join(part for part in (folder, name) if part)),
                body=body.read() if size <= PIECE_BYTES else _pieces(body, progress),
                query={"sha256": digest},
                headers={"If-None-Match": "*"} if fresh else {},
                again=size <= PIECE_BYTES,
                timeout_s=LONG_S,
            )
        if size <= PIECE_BYTES:
            progress(size)
        return HashedFile(name, size, digest)

    def _download(
        self,
        files: Sequence[_Download],
        target: Path,
        progress: Progress = unwatched,
        expect: Progress = unwatched,
    ) -> list[Path]:
        """Download files of the server into a folder; verified where their hashes are known."""
        expect(sum(file.size for file in files))
        for file in files:
            if not is_safe_path(file.name):
                raise JobError(f"the file {file.name!r} would be written outside {target}", "Nothing was downloaded.")

        def fetch(file: _Download) -> Path:
            self.calls.download(file.route, target / file.name, progress, file.sha256 or None)
            return target / file.name

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(fetch, files))


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


def _below(route: str, files: Sequence[FileEntry], address: str) -> list[_Download]:
    """The downloads for a folder, or for the one file at the address itself."""
    last = address.rstrip("/").rpartition("/")[2]
    return [_Download(f"{route}/{e.path}".rstrip("/"), e.path or last, e.size, e.sha256) for e in files]


def _pieces(body: IO[bytes], progress: Progress) -> Iterator[bytes]:
    while piece := body.read(PIECE_BYTES):
        yield piece
        progress(len(piece))


def _data(store: str, path: str) -> str:
    return f"/data/{store}/{path}".rstrip("/")


def _asset_path(name: str, version: str) -> str:
    return f"/assets/{check_asset_name(name)}/versions/{segment(version, 'version')}"


def _check_kind(source: Path, asset: NewAsset) -> None:
    """Refuse before the upload what would be refused after it."""
    check_asset_name(asset.name)
    if asset.type and source.exists() and source.is_file() != (asset.type == "uri_file"):
        is_now = "a file" if source.is_file() else "a folder"
        raise JobError(f"{source} is {is_now}, and the type given is {asset.type}", "Leave the type out.")


def _holds(known: AssetView, source: Path, asset: NewAsset) -> bool:
    """Whether a version has these files; hashes only where their number and size are equal."""
    files = list(local_files(source))
    total = sum(file.stat().st_size for _, file in files)
    is_file = source.is_file()
    kind = asset.type or ("uri_file" if is_file else "uri_folder")
    if known.digest is None or (known.num_files, known.size, known.type) != (len(files), total, kind):
        return False
    measured = [(name, measure(file)) for name, file in files]
    entries = [FileEntry("" if is_file else name, found.size, found.sha256) for name, found in measured]
    return digest_of(entries) == known.digest
