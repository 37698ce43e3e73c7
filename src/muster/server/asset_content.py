"""What a data asset holds when it is made: listed where it lies, hashed where that costs no download."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from muster import errors
from muster.data.access import FileEntry
from muster.data.addresses import Location, parse_address, safe_path
from muster.data.kinds import BUILT_IN, StoreSpec
from muster.server import assets, datastores, grants
from muster.server.assets import AssetBody
from muster.server.context import Context
from muster.store.reach import Reach

_HERE = ("local", "nfs", BUILT_IN)
_TYPES = ("uri_file", "uri_folder", "mltable")


def measure(context: Context, body: AssetBody) -> list[FileEntry]:
    """The manifest of an asset to be; raises NotFound where nothing lies at its address."""
    if body.type not in _TYPES:
        raise errors.JobError(f"a data asset cannot be of type {body.type!r}", f"Types are {', '.join(_TYPES)}.")
    location = parse_address(body.address)
    if location.kind == "asset":
        raise errors.JobError(f"{body.address} is an asset already", "Name the place where the data lies.")
    spec, path = context.database.read_now(lambda c: _store(context, c, location))
    found = grants.listing(context, spec, path, body.address, folder=body.type != "uri_file")
    if body.files is not None:
        return _told(body.files, found)
    if spec.kind not in _HERE:
        return found
    way = datastores.open_store(context, spec)
    return [replace(entry, sha256=_hash(way, _joined(path, entry.path))) for entry in found]


def locate(context: Context, name: str, version: str, path: str) -> tuple[Reach, str, int]:
    """The way to one file of an asset, its path there and its size."""

    def look(connection: Connection) -> tuple[StoreSpec, str, int]:
        asset = assets.find(connection, name, version)
        known = {entry.path: entry for entry in assets.files(connection, asset)}
        if path not in known:
            raise errors.NotFound(f"the data asset {name}:{version} has no file {path!r}", "Its manifest lists them.")
        spec, folder = _store(context, connection, parse_address(asset.address))
        return spec, _joined(folder, path), known[path].size

    spec, inner, size = context.database.read_now(look)
    return datastores.open_store(context, spec), inner, size


def _told(given: Sequence[Mapping[str, Any]], found: Sequence[FileEntry]) -> list[FileEntry]:
    """What the sender says that it sent, compared with what arrived."""
    sent = {safe_path(str(item["path"])): item for item in given}
    there = {entry.path: entry for entry in found}
    if sent.keys() != there.keys():
        wrong = sorted(sent.keys() ^ there.keys())[0]
        raise errors.Conflict(
            f"what was sent and what lies there differ, first in {wrong!r}", "Send it again, to an empty place."
        )
    for path, item in sent.items():
        if int(item["size"]) != there[path].size:
            raise errors.Conflict(
                f"{path} has {there[path].size} bytes there, {item['size']} were sent", "Send it again."
            )
    return [replace(there[path], sha256=str(item["sha256"])) for path, item in sorted(sent.items())]


def _store(context: Context, connection: Connection, location: Location) -> tuple[StoreSpec, str]:
    known = grants.find_store(context, connection, location) or grants.public_store(location)
    if known is not None:
        return known
    if location.kind == "local":
        folder, _, name = location.path.rstrip("/").rpartition("/")
        return StoreSpec(location.path, "local", {"path": folder or "/"}), name
    base, _, name = location.url.rstrip("/").rpartition("/")
    return StoreSpec(location.url, "fsspec", {"url": base}), name


def _hash(way: Reach, path: str) -> str:
    digest = hashlib.sha256()
    for piece in way.read(path):
        digest.update(piece)
    return digest.hexdigest()


def _joined(folder: str, path: str) -> str:
    return "/".join(part for part in (folder, path) if part)
