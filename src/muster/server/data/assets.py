"""Data assets: named, versioned, immutable, with a manifest of sizes and hashes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, true, update

from muster import errors
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of
from muster.storage.addresses import Location, datastore_address, parse_address
from muster.storage.grants import covers
from muster.wire.data.access import FileEntry, HashedFile
from muster.wire.data.assets import AssetView, NewAsset, digest_of
from muster.wire.node.requests import HashesReport

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def create(transaction: Transaction, body: NewAsset, kind: str, files: Sequence[FileEntry], user: str) -> AssetView:
    """Record the next version, or the one that is named; an existing one never changes."""
    table = tables.assets
    number = 1 + (transaction.execute(select(func.max(table.c.number)).where(table.c.name == body.name)).scalar() or 0)
    known = transaction.execute(_newest(body.name)).first() if body.version is None else None
    if known is not None and _is_same(transaction.connection, known, body, kind, files):
        return message_of(AssetView, known)
    version = body.version or _free_version(transaction, body.name, number)
    if not _VERSION.fullmatch(version):
        raise errors.JobError(f"{version!r} cannot be a version", "Use letters, digits, '_', '.' and '-', at most 64.")
    if (taken := _row(transaction.connection, body.name, version)) is not None:
        if taken.removed_at is not None:
            raise errors.Conflict(
                f"there was a data asset {body.name}:{version}, and runs may still name it",
                "Leave the version out for the next one.",
            )
        if _is_same(transaction.connection, taken, body, kind, files):
            return message_of(AssetView, taken)
        raise errors.Conflict(
            f"the data asset {body.name}:{version} exists with other data, and what exists never changes",
            "Leave the version out for the next one.",
        )
    made = AssetView(
        body.name,
        version,
        number,
        kind,
        str(parse_address(body.address)),
        len(files),
        sum(entry.size for entry in files),
        digest_of(files),
        body.description,
        dict(body.tags),
        body.run_id,
        user,
        time.time(),
    )
    transaction.execute(insert(table).values(**vars(made)))
    if files:
        own = {"name": body.name, "version": version}
        facts = ({"path": e.path, "size": e.size, "sha256": e.sha256, "etag": e.etag} for e in files)
        transaction.execute(insert(tables.asset_files), [{**own, **item} for item in facts])
    return made


def exists(connection: Connection, name: str, version: str) -> bool:
    """Whether there is, or was, this version of a data asset."""
    return _row(connection, name, version) is not None


def _is_same(connection: Connection, row: Row[Any], body: NewAsset, kind: str, given: Sequence[FileEntry]) -> bool:
    """Whether a version holds the same files: a script that runs again makes no new version of the same data."""
    if not given or row.type != kind:
        return False
    if (digest := digest_of(given)) is not None:
        return bool(row.digest == digest)
    if row.address != str(parse_address(body.address)) or not all(entry.etag for entry in given):
        return False
    kept = files(connection, message_of(AssetView, row))
    return {(item.path, item.size, item.etag) for item in kept} == {(item.path, item.size, item.etag) for item in given}


def resolve(connection: Connection, location: Location) -> tuple[Location, AssetView | None]:
    """Where an asset's bytes lie, and the asset; any other location stays as it is, with None."""
    if location.kind != "asset":
        return location, None
    asset = find(connection, location.store, location.version)
    return parse_address(asset.address), asset


def find(connection: Connection, name: str, version: str | None) -> AssetView:
    """An asset, its newest version unless one is named."""
    table = tables.assets
    row = _row(connection, name, version) if version is not None else connection.execute(_newest(name)).first()
    if row is not None and row.removed_at is None:
        return message_of(AssetView, row)
    there = (table.c.name == name, table.c.removed_at.is_(None))
    known = connection.execute(
        select(table.c.version).where(*there).order_by(table.c.number.desc()).limit(10)
    ).scalars()
    versions = ", ".join(known)
    if versions and version is None:
        raise errors.NotFound(
            f"all versions of the data asset {name} are archived",
            f"Name one of them: {versions}; `muster data archive {name}:VERSION --undo` brings it back.",
        )
    if row is not None:
        raise errors.NotFound(f"the data asset {name}:{version} was removed", f"There are: {versions or 'none'}.")
    if versions:
        raise errors.NotFound(f"the data asset {name} has no version {version}", f"Its newest versions: {versions}.")
    raise errors.NotFound(
        f"there is no data asset {name!r}", f"`muster data create {name} --path …` makes one; `muster data list` lists."
    )


def listing(connection: Connection, name: str | None = None, archived: bool = False) -> list[AssetView]:
    """Assets, the newest version of each first; with `archived` also archived ones."""
    table = tables.assets
    query = select(table).where(table.c.removed_at.is_(None)).order_by(table.c.name, table.c.number.desc())
    if not archived:
        query = query.where(table.c.archived_at.is_(None))
    if name is not None:
        query = query.where(table.c.name == name)
    return [message_of(AssetView, row) for row in connection.execute(query)]


def files(connection: Connection, asset: AssetView) -> tuple[FileEntry, ...]:
    """The manifest of an asset."""
    table = tables.asset_files
    rows = connection.execute(
        select(table).where(table.c.name == asset.name, table.c.version == asset.version).order_by(table.c.path)
    )
    return tuple(message_of(FileEntry, row) for row in rows)


def pin_input(transaction: Transaction, address: str, report: HashesReport) -> int:
    """Record the hashes that a node found for an input that is an asset. Returns how many were new."""
    location = parse_address(address)
    if location.kind == "model":
        return 0
    if location.kind != "asset" or location.version is None:
        raise errors.JobError(f"the input {report.name} is no data asset", "Only assets have a manifest that is kept.")
    return pin(transaction, location.store, location.version, report.files)


def pin(transaction: Transaction, name: str, version: str, found: Iterable[HashedFile]) -> int:
    """Record the hashes that a first download found; raises Conflict if others are known. Returns how many were new."""
    table = tables.asset_files
    asset = find(transaction.connection, name, version)
    known = {entry.path: entry for entry in files(transaction.connection, asset)}
    fresh = 0
    for entry in found:
        have = known.get(entry.path)
        if have is None or have.size != entry.size or (have.sha256 and entry.sha256 != have.sha256):
            raise changed(entry.path, name, version)
        if have.sha256 is None and entry.sha256:
            fresh += 1
            file = (table.c.name == name, table.c.version == version, table.c.path == entry.path)
            transaction.execute(update(table).where(*file).values(sha256=entry.sha256))
    if fresh:
        digest = digest_of(files(transaction.connection, asset))
        mine = (tables.assets.c.name == name, tables.assets.c.version == version)
        transaction.execute(update(tables.assets).where(*mine).values(digest=digest))
    return fresh


def changed(path: str, name: str, version: str) -> errors.Conflict:
    """The error for a file of an asset that has changed, although assets never do."""
    return errors.Conflict(
        f"{path} of the data asset {name}:{version} has changed since the asset was made",
        "Something wrote to its place: make a new version of it.",
    )


def refuse_kept(connection: Connection, store: str, *paths: str) -> None:
    """Refuse to write to the content of an asset or model, or to a folder around it: it never changes."""
    root = datastore_address(store, "")
    for what, table in (("data asset", tables.assets), ("model", tables.models)):
        query = select(table.c.name, table.c.version, table.c.address).where(_below(table, root), is_there(table))
        for row in connection.execute(query):
            kept = parse_address(row.address).path
            for path in paths:
                _refuse_around(f"the {what} {row.name}:{row.version}", kept, store, path)


def _refuse_around(what: str, kept: str, store: str, path: str) -> None:
    if covers(path, kept, folder=True) and path != kept:
        where = path or "the root"
        raise errors.Conflict(f"{what}, which never changes, is below {where} of {store}", "Write to another folder.")
    if covers(kept, path, folder=True):
        raise errors.Conflict(
            f"{path} in {store} belongs to {what}, which never changes", "Write elsewhere, and make a new version."
        )


def is_there(table: Any) -> Any:
    """The condition that an asset was not removed; a removed model has no row."""
    return table.c.removed_at.is_(None) if "removed_at" in table.c else true()


def _newest(name: str) -> Any:
    """The newest version that is neither archived nor removed."""
    table = tables.assets
    there = (table.c.name == name, table.c.archived_at.is_(None), table.c.removed_at.is_(None))
    return select(table).where(*there).order_by(table.c.number.desc())


def _below(table: Any, root: str) -> Any:
    return func.substr(table.c.address, 1, len(root)) == root


def _free_version(transaction: Transaction, name: str, number: int) -> str:
    while _row(transaction.connection, name, str(number)) is not None:
        number += 1
    return str(number)


def _row(connection: Connection, name: str, version: str) -> Row[Any] | None:
    table = tables.assets
    return connection.execute(select(table).where(table.c.name == name, table.c.version == version)).first()
