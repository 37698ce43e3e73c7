"""Registered datastores: kept with sealed credentials, opened for the server's own reading and writing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from sqlalchemy import Connection, delete, func, insert, select

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.storage.addresses import DEFAULT_DATASTORE, Location, datastore_address
from muster.storage.connectors.reach import Reach, StoreReach, reach
from muster.storage.kinds import BUILT_IN, StoreSpec, describe, make_store
from muster.wire import states

BUILT_IN_FOLDER = "data"
"""Where the workspace's own datastore lies in the workspace store."""
_OWN = StoreSpec(DEFAULT_DATASTORE, BUILT_IN, {})


def add(context: Context, transaction: Transaction, body: Mapping[str, Any], replace: bool) -> dict[str, Any]:
    """Register a datastore; its credential is sealed before it is written."""
    spec = make_store(str(body["name"]), str(body["kind"]), body.get("options") or {}, body.get("credential") or {})
    _check_here(context, spec)
    table = tables.datastores
    known = transaction.execute(select(table.c.name).where(table.c.name == spec.name)).first()
    if known is not None and not replace:
        raise errors.Conflict(
            f"there is a datastore {spec.name!r} already", "Choose another name, or replace it with --replace."
        )
    sealed = context.vault.seal(spec.credential, _about(spec.name)) if spec.credential else None
    row = {
        "name": spec.name,
        "kind": spec.kind,
        "options": dict(spec.options),
        "created_at": time.time(),
        "sealed": sealed,
        "description": body.get("description"),
    }
    transaction.execute(delete(table).where(table.c.name == spec.name))
    transaction.execute(insert(table).values(**row))
    transaction.after_commit.append(lambda: context.forget_store(spec.name))
    return view(spec, row)


def _check_here(context: Context, spec: StoreSpec) -> None:
    """Refuse what can never work on this machine."""
    if spec.kind == "fsspec":
        scheme = str(spec.options["url"]).partition("://")[0]
        if scheme not in fsspec.available_protocols():
            raise errors.JobError(f"fsspec knows no {scheme}://", "Write s3://, gs://, sftp://, https:// or the like.")
    if spec.kind != "local":
        return
    folder = Path(str(spec.options["path"]))
    if not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder} on the server's machine", "Make it first.")
    if spec.options.get("encrypted") and context.ring is None:
        hint = "`muster key create FILE` makes a key and says how the workspace gets it."
        raise errors.Conflict(f"the datastore {spec.name} is to be encrypted, and the workspace has no key", hint)


def views(context: Context, connection: Connection) -> list[dict[str, Any]]:
    """All datastores, the workspace's own first."""
    rows = connection.execute(select(tables.datastores).order_by(tables.datastores.c.name)).all()
    own = view(_OWN, {"created_at": None, "description": "what the workspace keeps itself"})
    return [own, *(_shown(context, row) for row in rows)]


def _shown(context: Context, row: Any) -> dict[str, Any]:
    try:
        return view(_spec(context, row), dict(row._mapping))
    except errors.Conflict as error:
        shown = view(StoreSpec(row.name, row.kind, row.options), dict(row._mapping))
        return {**shown, "credential": "unreadable", "problem": error.message}


def view(spec: StoreSpec, row: Mapping[str, Any]) -> dict[str, Any]:
    """What may be shown of a datastore: never its credential."""
    return {
        "name": spec.name,
        "kind": spec.kind,
        "options": dict(spec.options),
        "credential": spec.credential_kind,
        "location": describe(spec),
        "description": row.get("description"),
        "created_at": row.get("created_at"),
        "default": spec.name == DEFAULT_DATASTORE,
    }


def find(context: Context, connection: Connection, name: str) -> StoreSpec:
    """A datastore with its credential opened, or a refusal that names the known ones."""
    if name == DEFAULT_DATASTORE:
        return _OWN
    row = connection.execute(select(tables.datastores).where(tables.datastores.c.name == name)).first()
    if row is None:
        names = connection.execute(select(tables.datastores.c.name)).scalars()
        known = ", ".join([DEFAULT_DATASTORE, *sorted(names)])
        raise errors.NotFound(
            f"there is no datastore {name!r}", f"Known here: {known}. `muster datastore create NAME` makes one."
        )
    return _spec(context, row)


def find_view(context: Context, connection: Connection, name: str) -> dict[str, Any]:
    find(context, connection, name)
    return next(item for item in views(context, connection) if item["name"] == name)


def open_store(context: Context, spec: StoreSpec) -> Reach:
    """The way to a datastore; kept, because opening one may ask a service who we are."""
    if spec.kind == BUILT_IN:
        return StoreReach(context.store, spec, BUILT_IN_FOLDER)
    kept = context.reached.get(spec.name)
    if kept is None or kept[0] != spec:
        kept = context.reached[spec.name] = (spec, reach(spec, context.ring))
    return kept[1]


def remove(context: Context, transaction: Transaction, name: str) -> None:
    """Forget a datastore that nothing refers to; what it holds stays."""
    find(context, transaction.connection, name)
    if name == DEFAULT_DATASTORE:
        raise errors.Conflict(f"{name} is the workspace's own datastore", "It stays.")
    address = datastore_address(name, "")
    used = transaction.execute(
        select(tables.assets.c.name, tables.assets.c.version).where(
            func.substr(tables.assets.c.address, 1, len(address)) == address
        )
    ).first()
    if used is not None:
        raise errors.Conflict(f"the data asset {used.name}:{used.version} lies in {name}", "It has to stay.")
    run = _run_that_uses(transaction.connection, address)
    if run is not None:
        raise errors.Conflict(f"the run {run} uses {name}", "Wait for its end, or cancel it.")
    transaction.execute(delete(tables.datastores).where(tables.datastores.c.name == name))
    transaction.after_commit.append(lambda: context.forget_store(name))


def _run_that_uses(connection: Connection, address: str) -> str | None:
    """A run that is not over and names a place in the datastore."""
    runs = tables.runs
    for row in connection.execute(select(runs.c.id, runs.c.spec).where(runs.c.status.not_in(states.TERMINAL))):
        named = [*(row.spec.get("inputs") or {}).values(), *(row.spec.get("outputs") or {}).values()]
        if any(isinstance(item, Mapping) and f"{item.get('path') or ''}/".startswith(address) for item in named):
            return str(row.id)
    return None


def try_out(context: Context, spec: StoreSpec, write: bool) -> list[str]:
    """Use a datastore as a job would; returns what works, in words. Raises what does not."""
    way = open_store(context, spec)
    seen = sum(1 for _, _ in zip(range(1000), way.entries(""), strict=False))
    done = [f"lists its files ({'1,000 or more' if seen == 1000 else f'{seen:,}'})"]
    if not write:
        return done
    name = f".muster-test-{secrets.token_hex(4)}"
    way.write(name, [b"muster"])
    try:
        if b"".join(way.read(name)) != b"muster":
            raise errors.UserError(f"the datastore {spec.name} gave back something else than was written to it")
    finally:
        way.remove(name)
    return [*done, "writes, reads back and removes a file"]


def matching(context: Context, connection: Connection, location: Location) -> tuple[StoreSpec, str] | None:
    """The datastore that an address of a container lies in, and the path there; the narrowest where several do."""
    found: list[tuple[StoreSpec, str]] = []
    for row in connection.execute(select(tables.datastores).where(tables.datastores.c.kind == "azure-blob")):
        options, below = row.options, row.options.get("path", "")
        same = options["account"] == location.account and options["container"] == location.store
        if same and (not below or location.path == below or location.path.startswith(f"{below}/")):
            found.append((_spec(context, row), location.path[len(below) :].strip("/")))
    return max(found, key=lambda item: len(item[0].options.get("path", "")), default=None)


def _spec(context: Context, row: Any) -> StoreSpec:
    credential = context.vault.open(row.sealed, _about(row.name)) if row.sealed else {}
    return StoreSpec(row.name, row.kind, row.options, credential)


def _about(name: str) -> str:
    return f"the credential of the datastore {name}"
