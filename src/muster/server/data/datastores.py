"""Registered datastores: kept with sealed credentials, opened for the server's own reading and writing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
from sqlalchemy import Connection, Row, delete, func, select, true

from muster import errors
from muster.control.access import Action, Caller, require
from muster.host.egress import fenced
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.storage.addresses import DEFAULT_DATASTORE, Location, datastore_address
from muster.storage.connectors.creating import create_root
from muster.storage.connectors.datastore import Datastore, StoreFolder, open_datastore
from muster.storage.grants import covers
from muster.storage.kinds import (
    NO_CREDENTIAL,
    BlobContainer,
    Credential,
    FsspecAddress,
    LocalFolder,
    SharedFolder,
    StoreSpec,
    WorkspaceFolder,
    describe,
    make_store,
    read_options,
)
from muster.storage.reach import require_path, require_store
from muster.storage.sas import permissions
from muster.wire import states
from muster.wire.codec import from_json, to_json
from muster.wire.data.datastores import DatastoreView, NewDatastore
from muster.wire.people import ADMIN

BUILT_IN_FOLDER = "data"
"""Where the workspace's own datastore lies in the workspace store."""
_WIDE_KEY = (
    "an account key opens everything in the account and never expires. Where only this datastore is needed, a SAS for "
    "it (--sas FILE) or an identity (--identity) would do."
)
_OWN = StoreSpec(DEFAULT_DATASTORE, WorkspaceFolder())


def add(
    context: Context, transaction: Transaction, body: NewDatastore, replaces: bool, caller: Caller
) -> DatastoreView:
    """Register a datastore; its credential is sealed before it is written."""
    spec = make_store(body.name, body.kind, body.options, body.credential)
    spec = replace(spec, vouched=caller.role == ADMIN)
    _check_here(context, spec)
    table = tables.datastores
    known = transaction.execute(select(table.c.owner).where(table.c.name == spec.name)).first()
    if known is not None and not replaces:
        raise errors.Conflict(
            f"there is a datastore {spec.name!r} already", "Choose another name, or replace it with --replace."
        )
    if known is not None:
        require(caller, Action.CHANGE_DATASTORE, known.owner, f"the datastore {spec.name}")
    owner = caller.subject if known is None else known.owner
    view = _view(spec, body.description, time.time(), owner)
    sealed = context.vault.seal(to_json(spec.credential), about(spec.name)) if spec.credential.kind else None
    kept = {name: getattr(view, name) for name in ("name", "kind", "options", "created_at", "description", "owner")}
    upsert(transaction, table, {**kept, "sealed": sealed})
    transaction.after_commit.append(lambda: context.data.forget(spec.name))
    return replace(view, notice=_WIDE_KEY if spec.credential.account_key else None)


def create_place(context: Context, body: NewDatastore, caller: Caller) -> None:
    """Create a datastore's container, share or folder, if it is missing."""
    spec = make_store(body.name, body.kind, body.options, body.credential)
    spec = replace(spec, vouched=caller.role == ADMIN)
    require_reach(context, spec)
    with fenced(context.reach.fence if _is_guarded(context, spec) else None):
        create_root(spec)


def _check_here(context: Context, spec: StoreSpec) -> None:
    """Refuse a datastore that can never work on this machine."""
    options = spec.options
    require_reach(context, spec)
    if isinstance(options, FsspecAddress):
        scheme = options.url.partition("://")[0]
        if scheme not in fsspec.available_protocols():
            raise errors.JobError(f"fsspec knows no {scheme}://", "Write s3://, gs://, sftp://, https:// or the like.")
    if not isinstance(options, LocalFolder):
        return
    if not Path(options.path).is_dir():
        hint = "Make it first, or have it made: --create."
        raise errors.NotFound(f"there is no folder {options.path} on the server's machine", hint)
    if options.encrypted and context.files.ring is None:
        hint = "`muster key create FILE` makes a key and says how the workspace gets it."
        raise errors.Conflict(f"the datastore {spec.name} is to be encrypted, and the workspace has no key", hint)


def views(context: Context, connection: Connection) -> list[DatastoreView]:
    """All datastores, the workspace's own first."""
    rows = connection.execute(select(tables.datastores).order_by(tables.datastores.c.name)).all()
    own = _view(_OWN, "what the workspace keeps itself", None)
    return [own, *(_shown(context, row) for row in rows)]


def _shown(context: Context, row: Row[Any]) -> DatastoreView:
    try:
        return _view(_spec(context, row), row.description, row.created_at, row.owner)
    except errors.Conflict as error:
        spec = StoreSpec(row.name, read_options(row.kind, row.options))
        shown = _view(spec, row.description, row.created_at, row.owner)
        return replace(shown, credential="unreadable", problem=error.message)


def _view(
    spec: StoreSpec, description: str | None, created_at: float | None, owner: str | None = None
) -> DatastoreView:
    """What may be shown of a datastore: never its credential."""
    return DatastoreView(
        spec.name,
        spec.kind,
        to_json(spec.options),
        spec.credential_kind,
        describe(spec),
        description,
        created_at,
        spec.name == DEFAULT_DATASTORE,
        owner=owner,
    )


def find(context: Context, connection: Connection, name: str) -> StoreSpec:
    """A datastore with its credential unsealed; raises a NotFound that names the known ones."""
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


def find_view(context: Context, connection: Connection, name: str) -> DatastoreView:
    find(context, connection, name)
    return next(item for item in views(context, connection) if item.name == name)


def open_store(context: Context, spec: StoreSpec) -> Datastore:
    """An open datastore; kept, because opening one may need a sign-in to a service."""
    if isinstance(spec.options, WorkspaceFolder):
        return Datastore(spec, StoreFolder(context.files.store, BUILT_IN_FOLDER))
    require_reach(context, spec)
    fence = context.reach.fence if _is_guarded(context, spec) else None
    kept = context.data.opened.get(spec.name)
    if kept is None or kept[0] != (spec, fence):
        kept = context.data.opened[spec.name] = ((spec, fence), open_datastore(spec, context.files.ring, fence))
    return kept[1]


def require_reach(context: Context, spec: StoreSpec) -> None:
    """Refuse a datastore that reaches into the server's machine, unless an administrator chose it."""
    if _is_guarded(context, spec):
        what = f"the datastore {spec.name}"
        require_store(spec.options, spec.credential.secret_options, context.reach, what)
        if isinstance(spec.options, LocalFolder | SharedFolder):
            require_path(str(Path(spec.options.path).resolve()), context.reach, what)


def _is_guarded(context: Context, spec: StoreSpec) -> bool:
    """Whether a user who is not an administrator chose where it leads; a single user is one."""
    return context.tokens.people.is_shared and not spec.vouched and not isinstance(spec.options, WorkspaceFolder)


def remove(context: Context, transaction: Transaction, name: str, caller: Caller) -> None:
    """Forget a datastore that nothing refers to; its files stay."""
    find(context, transaction.connection, name)
    if name == DEFAULT_DATASTORE:
        raise errors.Conflict(f"{name} is the workspace's own datastore", "It stays.")
    table = tables.datastores
    owner = transaction.execute(select(table.c.owner).where(table.c.name == name)).scalar()
    require(caller, Action.CHANGE_DATASTORE, owner, f"the datastore {name}")
    address = datastore_address(name, "")
    for what, kept in (("data asset", tables.assets), ("model", tables.models)):
        lies_there = func.substr(kept.c.address, 1, len(address)) == address
        there = kept.c.removed_at.is_(None) if kept is tables.assets else true()
        used = transaction.execute(select(kept.c.name, kept.c.version).where(lies_there, there)).first()
        if used is not None:
            raise errors.Conflict(f"the {what} {used.name}:{used.version} lies in {name}", "It has to stay.")
    run = _run_that_uses(transaction.connection, address)
    if run is not None:
        raise errors.Conflict(f"the run {run} uses {name}", "Wait for its end, or cancel it.")
    transaction.execute(delete(tables.datastores).where(tables.datastores.c.name == name))
    transaction.after_commit.append(lambda: context.data.forget(name))


def _run_that_uses(connection: Connection, address: str) -> str | None:
    """A run that is not over and names a place in the datastore."""
    runs = tables.runs
    for row in connection.execute(select(runs.c.id, runs.c.spec).where(runs.c.status.not_in(states.TERMINAL))):
        named = [*(row.spec.get("inputs") or {}).values(), *(row.spec.get("outputs") or {}).values()]
        if any(isinstance(item, Mapping) and f"{item.get('path') or ''}/".startswith(address) for item in named):
            return str(row.id)
    return None


def try_out(context: Context, spec: StoreSpec, write: bool) -> tuple[str, ...]:
    """Use a datastore as a job would; returns what works, in words. Raises what does not."""
    datastore = open_store(context, spec)
    seen = sum(1 for _, _ in zip(range(1000), datastore.entries(""), strict=False))
    listed = f"lists its files ({'1,000 or more' if seen == 1000 else f'{seen:,}'})"
    if not write:
        return (*_credential_words(spec), listed)
    name = f".muster-test-{secrets.token_hex(4)}"
    try:
        datastore.write(name, [b"muster"])
    except (errors.AccessDenied, errors.JobError) as error:
        hint = f"`muster datastore test {spec.name} --read-only` tests one that is only read."
        words = "; ".join((*_credential_words(spec), listed, "it cannot be written to"))
        raise type(error)(f"{error.message}. What is known: {words}", f"{hint} {error.hint or ''}".strip()) from error
    if b"".join(datastore.read(name)) != b"muster":
        raise errors.UserError(f"the datastore {spec.name} did not return what was written to it")
    try:
        datastore.remove(name)
    except errors.AccessDenied:
        return (*_credential_words(spec), listed, f"writes and reads back a file, and may not remove it: {name} stays")
    return (*_credential_words(spec), listed, "writes, reads back and removes a file")


def _credential_words(spec: StoreSpec) -> tuple[str, ...]:
    """What the credential allows, as far as it says so itself."""
    if spec.credential.account_key:
        return (f"its credential: {_WIDE_KEY}",)
    return (permissions(spec.credential.sas),) if spec.credential.sas else ()


def matching(context: Context, connection: Connection, location: Location) -> tuple[StoreSpec, str] | None:
    """The datastore that a container's address lies in, and the path there; the narrowest of several."""
    found: list[tuple[int, StoreSpec, str]] = []
    for row in connection.execute(select(tables.datastores).where(tables.datastores.c.kind == BlobContainer.kind)):
        options = from_json(BlobContainer, row.options)
        same = options.account == location.account and options.container == location.store
        if same and covers(options.path, location.path, folder=True):
            inner = location.path[len(options.path) :].strip("/")
            found.append((len(options.path), _spec(context, row), inner))
    return max(found, key=lambda item: item[0])[1:] if found else None


def _spec(context: Context, row: Row[Any]) -> StoreSpec:
    vault = context.vault
    opened = from_json(Credential, vault.open(row.sealed, about(row.name))) if row.sealed else NO_CREDENTIAL
    vouched = row.owner is None or context.tokens.people.role(row.owner) == ADMIN
    return StoreSpec(row.name, read_options(row.kind, row.options), opened, vouched)


def about(name: str) -> str:
    return f"the credential of the datastore {name}"
