"""Retention: finds and lists what nothing refers to any more, and removes it on request. Everything else stays."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, select

from muster.server.context import Context
from muster.server.data import datastores
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.endpoints.batch.records import kept_snapshots
from muster.server.environments.records import build_snapshot, registered_folders
from muster.server.runs import checkpoints
from muster.storage.addresses import DEFAULT_DATASTORE, datastore_address, parse_address
from muster.storage.grants import covers
from muster.wire import states
from muster.wire.retention import Removable, RetentionPolicy, RetentionReport


@dataclass(frozen=True)
class Known:
    """What the database refers to."""

    runs: frozenset[str]
    """Those that exist, and those that models come from."""
    snapshots: dict[str, float]
    """Every snapshot and when it was last used."""
    used_snapshots: frozenset[str]
    checkpoint_folders: frozenset[str]
    superseded: tuple[Any, ...]
    """Checkpoints of completed runs that are older than their last."""
    assets: tuple[str, ...]
    """Where assets and models lie in the workspace's own datastore."""


_UPLOAD = re.compile(r"[0-9a-f]{12}")
Objects = list[tuple[str, int, float]]
"""Names, sizes and times of everything in the workspace store."""


def collect(context: Context, policy: RetentionPolicy) -> RetentionReport:
    """Find what may be removed and, unless it is a dry run, remove it."""
    known = context.database.read_now(_load)
    objects = list(context.files.store.files())
    before = time.time() - policy.older_than_s
    found = [
        *_snapshots(known, before, policy.keep_last),
        *_superseded(known, before),
        *_objects(known, objects, before),
    ]
    if not policy.dry_run:
        _remove(context, found)
    found += _blobs(context, objects, before, found, policy.dry_run)
    return RetentionReport(policy.dry_run, len(found), sum(item.size for item in found), tuple(found))


def _load(connection: Connection) -> Known:
    runs = connection.execute(
        select(tables.runs.c.id, tables.runs.c.snapshot, tables.runs.c.status, tables.runs.c.environment)
    ).all()
    rows = connection.execute(select(tables.checkpoints)).all()
    completed = {row.id for row in runs if row.status == states.COMPLETED}
    by_run: dict[str, list[Any]] = {}
    for row in rows:
        by_run.setdefault(row.run_id, []).append(row)
    superseded = [row for run in completed & by_run.keys() for row in checkpoints.superseded(by_run[run])]
    root = datastore_address(DEFAULT_DATASTORE, "")
    kept = (
        select(tables.assets.c.address).where(tables.assets.c.removed_at.is_(None)),
        select(tables.models.c.address),
    )
    addresses = [address for query in kept for address in connection.execute(query).scalars() if address]
    snapshots = connection.execute(select(tables.snapshots)).all()
    models = connection.execute(select(tables.models.c.run_id).where(tables.models.c.run_id.is_not(None))).scalars()
    return Known(
        runs=frozenset(row.id for row in runs) | frozenset(models),
        snapshots={row.digest: max(row.created_at, row.used_at or 0.0) for row in snapshots},
        used_snapshots=frozenset(
            digest for row in runs for digest in (row.snapshot, build_snapshot(row.environment)) if digest
        )
        | registered_folders(connection)
        | kept_snapshots(connection),
        checkpoint_folders=frozenset(checkpoints.folder_of(row) for row in rows),
        superseded=tuple(superseded),
        assets=tuple(parse_address(address).path for address in addresses if address.startswith(root)),
    )


def _snapshots(known: Known, before: float, keep_last: int) -> list[Removable]:
    unused = sorted(
        ((at, digest) for digest, at in known.snapshots.items() if digest not in known.used_snapshots), reverse=True
    )
    return [
        Removable("code snapshot", digest, 0, at, "no run was made from it")
        for at, digest in unused[keep_last:]
        if at < before
    ]


def _superseded(known: Known, before: float) -> list[Removable]:
    return [
        Removable("checkpoint", str(row.id), row.size, row.at, f"{row.run_id} has completed, and published later ones")
        for row in known.superseded
        if row.at < before
    ]


def _objects(known: Known, objects: Objects, before: float) -> Iterator[Removable]:
    """Files in the store that belong to nothing."""
    for name, size, at in objects:
        if at < before and (why := _orphan(known, name)):
            yield Removable("file", name, size, at, why)


def _orphan(known: Known, name: str) -> str:
    """Why nothing refers to a file of the store; empty where something may."""
    parts = name.split("/")
    if ".part-" in parts[-1]:
        return "a put that was never finished"
    if parts[0] == "runs" and len(parts) > 2:
        if parts[1] not in known.runs:
            return f"the run {parts[1]} was removed"
        if parts[2] == "checkpoints" and "/".join(parts[:6]) not in known.checkpoint_folders:
            return "a checkpoint that was never published, or was removed"
    # Only folders that a client named for an upload: users may call a folder of theirs `assets` too.
    if parts[0] == datastores.BUILT_IN_FOLDER and len(parts) > 4 and _UPLOAD.fullmatch(parts[3]):
        path = "/".join(parts[1:])
        if parts[1] in ("assets", "models") and not any(covers(at, path, folder=True) for at in known.assets):
            return "an upload that no data asset and no model refers to"
        if parts[1] == "run-files" and parts[2] not in known.runs:
            return f"the run {parts[2]} was removed"
    return ""


def _blobs(
    context: Context, objects: Objects, before: float, gone: Iterable[Removable], dry_run: bool
) -> list[Removable]:
    """Contents that no remaining snapshot names. Takes the lock under which snapshots are written."""
    digests = {item.name for item in gone if item.kind == "code snapshot"}
    with context.files.code_lock:
        needed = set(_needed(context, digests))
        found = [
            Removable("code", name, size, at, "no code snapshot names it")
            for name, size, at in objects
            if name.startswith("code/blobs/") and at < before and name.rpartition("/")[2] not in needed
        ]
        found = [item for item in found if ".part-" not in item.name]
        if not dry_run:
            for item in found:
                context.files.store.remove(item.name)
    return found


def _needed(context: Context, leaving: set[str]) -> Iterator[str]:
    for name, _, _ in list(context.files.store.files("code/snapshots")):
        digest = name.rpartition("/")[2].removesuffix(".json")
        if digest not in leaving:
            yield from (entry[0] for entry in context.files.snapshots.files(digest).values())


def _remove(context: Context, found: Iterable[Removable]) -> None:
    for item in found:
        if item.kind == "file":
            context.files.store.remove(item.name)
        elif item.kind == "checkpoint":
            for folder in context.database.submit(partial(_forget_checkpoint, int(item.name))).result():
                context.files.store.remove(folder)
        elif item.kind == "code snapshot":
            context.database.submit(partial(_forget_snapshot, context, item.name)).result()


def _forget_snapshot(context: Context, digest: str, transaction: Transaction) -> None:
    """Serialised with submissions, so that none can name a snapshot that is being removed."""
    used = transaction.execute(select(tables.runs.c.id).where(tables.runs.c.snapshot == digest)).first()
    kept = registered_folders(transaction.connection) | kept_snapshots(transaction.connection)
    if used is None and digest not in kept:
        transaction.execute(delete(tables.snapshots).where(tables.snapshots.c.digest == digest))
        context.files.snapshots.forget(digest)


def _forget_checkpoint(row_id: int, transaction: Transaction) -> list[str]:
    """Returns the folder that held it, unless another checkpoint lies there too."""
    table = tables.checkpoints
    row = transaction.execute(select(table).where(table.c.id == row_id)).first()
    if row is None:
        return []
    transaction.execute(delete(table).where(table.c.id == row_id))
    others = transaction.execute(select(table).where(table.c.run_id == row.run_id)).all()
    folder = checkpoints.folder_of(row)
    return [] if folder in {checkpoints.folder_of(other) for other in others} else [folder]
