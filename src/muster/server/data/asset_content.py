"""The content of a new data asset: listed where it lies, hashed where that costs no download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from muster import errors
from muster.host.hashing import measure_pieces
from muster.server.context import Context
from muster.server.data import assets, datastores, grants
from muster.storage.addresses import (
    DEFAULT_DATASTORE,
    Location,
    check_asset_name,
    joined,
    parse_address,
    safe_path,
)
from muster.storage.connectors.datastore import Datastore
from muster.storage.kinds import FsspecAddress, LocalFolder, SharedFolder, StoreSpec, WorkspaceFolder
from muster.wire.data.access import FileEntry, HashedFile
from muster.wire.data.assets import NewAsset

_HERE = (LocalFolder, SharedFolder, WorkspaceFolder)
_TYPES = ("uri_file", "uri_folder", "mltable")


def measure(context: Context, body: NewAsset) -> tuple[str, list[FileEntry]]:
    """The type and the manifest of a new asset; raises NotFound if nothing is at its address."""
    check_asset_name(body.name)
    if body.type is not None and body.type not in _TYPES:
        raise errors.JobError(f"a data asset cannot be of type {body.type!r}", f"Types are {', '.join(_TYPES)}.")
    location = parse_address(body.address)
    if location.kind == "asset":
        raise errors.JobError(f"{body.address} is an asset already", "Give the path or address of the data.")
    spec, path = context.database.read_now(lambda c: store_of(context, c, location))
    datastore = datastores.open_store(context, spec)
    is_file = body.type == "uri_file" if body.type else bool(path) and datastore.entry(path) is not None
    found = grants.listing(context, spec, path, body.address, folder=not is_file)
    if body.files is not None:
        found = _compared(body.files, found)
    elif isinstance(spec.options, _HERE):
        found = [
            replace(entry, sha256=measure_pieces(datastore.read(joined(path, entry.path))).sha256) for entry in found
        ]
    return body.type or ("uri_file" if is_file else "uri_folder"), found


def seen(context: Context, connection: Connection, address: str, folder: bool) -> list[FileEntry] | None:
    """The files at an address with their sizes, where listing them costs little; None where the store is elsewhere.

    If nothing is there, the list is empty; hashes come with the first download.
    """
    spec, path = store_of(context, connection, parse_address(address))
    if not isinstance(spec.options, _HERE) or context.files.store.local_root is None:
        return None
    try:
        return grants.listing(context, spec, path, address, folder)
    except errors.MusterError:
        return []


def protect(context: Context, address: str, files: Sequence[FileEntry]) -> None:
    """Make an asset's files read-only, if they lie in the workspace's own folder."""
    location, store = parse_address(address), context.files.store
    root = store.local_root
    if location.kind != "datastore" or location.store != DEFAULT_DATASTORE or root is None or store.encrypted:
        return
    for entry in files:
        (root / datastores.BUILT_IN_FOLDER / joined(location.path, entry.path)).chmod(0o444)


def locate(context: Context, name: str, version: str, path: str) -> tuple[Datastore, str, int]:
    """The datastore of one file of an asset, its path there and its size; raises Conflict where it has changed."""

    def look(connection: Connection) -> tuple[StoreSpec, str, int]:
        asset = assets.find(connection, name, version)
        known = {entry.path: entry for entry in assets.files(connection, asset)}
        if path not in known:
            raise errors.NotFound(f"the data asset {name}:{version} has no file {path!r}", "Its manifest lists them.")
        spec, folder = store_of(context, connection, parse_address(asset.address))
        return spec, joined(folder, path), known[path].size

    spec, inner, size = context.database.read_now(look)
    datastore = datastores.open_store(context, spec)
    there = datastore.entry(inner)
    if there is None or there.size != size:
        raise assets.changed(path or inner, name, version)
    return datastore, inner, size


def _compared(given: Sequence[HashedFile], found: Sequence[FileEntry]) -> list[FileEntry]:
    """The files that arrived, compared with those that the sender announced, and with their hashes."""
    sent = {safe_path(item.path): item for item in given}
    there = {entry.path: entry for entry in found}
    if sent.keys() != there.keys():
        wrong = sorted(sent.keys() ^ there.keys())[0]
        raise errors.Conflict(
            f"what was sent and what is there differ, first in {wrong!r}", "Send it again, to an empty place."
        )
    for path, item in sent.items():
        if item.size != there[path].size:
            raise errors.Conflict(f"{path} has {there[path].size} bytes there, {item.size} were sent", "Send it again.")
    return [replace(there[path], sha256=item.sha256) for path, item in sorted(sent.items())]


def store_of(context: Context, connection: Connection, location: Location) -> tuple[StoreSpec, str]:
    """The datastore that a location lies in, registered or not, and the path there."""
    known = grants.find_store(context, connection, location) or grants.public_store(location)
    if known is not None:
        return known
    if location.kind == "local":
        folder, _, name = location.path.rstrip("/").rpartition("/")
        return StoreSpec(location.path, LocalFolder(folder or "/")), name
    base, _, name = location.url.rstrip("/").rpartition("/")
    return StoreSpec(location.url, FsspecAddress(base)), name
