"""Data assets after their creation: uses, archiving and removal."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, Text, cast, delete, select, update

from muster import errors
from muster.host import clock
from muster.server.data import assets
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.storage.addresses import Location
from muster.wire import states
from muster.wire.data.assets import AssetUses, AssetView

_NAMED = 10
"""The most runs that are named."""


def archive(transaction: Transaction, name: str, version: str, archived: bool) -> AssetView:
    """Hide a version from lists and from `latest`, or show it again; jobs that name it still get it."""
    assets.find(transaction.connection, name, version)
    table = tables.assets
    mine = (table.c.name == name, table.c.version == version)
    transaction.execute(update(table).where(*mine).values(archived_at=clock.now() if archived else None))
    return assets.find(transaction.connection, name, version)


def remove(transaction: Transaction, name: str, version: str) -> AssetUses:
    """Forget a version that no active run uses; its number is never used again. Returns the runs that used it."""
    asset = assets.find(transaction.connection, name, version)
    found = uses(transaction.connection, asset)
    if found.active:
        raise errors.Conflict(
            f"the data asset {name}:{version} is used by {', '.join(found.active)}",
            "Wait for the end of what uses it, or cancel that; `muster data archive` hides it meanwhile.",
        )
    table, files = tables.assets, tables.asset_files
    transaction.execute(delete(files).where(files.c.name == name, files.c.version == version))
    mine = (table.c.name == name, table.c.version == version)
    transaction.execute(update(table).where(*mine).values(removed_at=clock.now()))
    return found


def uses(connection: Connection, asset: AssetView) -> AssetUses:
    """The runs that have a version as an input: those that are not over, and the newest of the others."""
    address = str(Location("asset", store=asset.name, version=asset.version))
    runs = tables.runs
    named = cast(runs.c.spec, Text).like(f'%"{address}"%')
    query = select(runs.c.id, runs.c.status, runs.c.spec).where(named).order_by(runs.c.created_at.desc())
    active: list[str] = []
    ended: list[str] = []
    for row in connection.execute(query):
        inputs = row.spec.get("inputs") or {}
        if any(isinstance(item, Mapping) and item.get("path") == address for item in inputs.values()):
            (ended if row.status in states.TERMINAL else active).append(str(row.id))
    return AssetUses(tuple(active), len(ended), tuple(ended[:_NAMED]), asset.run_id)
