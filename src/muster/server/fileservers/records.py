"""The records of file servers and their fills."""

from __future__ import annotations

import secrets
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from muster import errors
from muster.control.access import Caller
from muster.host import clock
from muster.host.network import network_of
from muster.job import rules
from muster.paths import FileServerPaths
from muster.server.context import Context
from muster.server.data import assets, datastores, grants
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.server.nodes import clusters
from muster.storage.addresses import parse_address, safe_path
from muster.wire.codec import Json, from_json, to_json
from muster.wire.data.fileservers import FileServerChanges, FillProgress, NewFileServer, NewFill, check_clients
from muster.wire.text import size

THIS_MACHINE = "127.0.0.1/32"
_SERVERS, _FILLS = tables.file_servers, tables.fills


def add(context: Context, transaction: Transaction, new: NewFileServer, caller: Caller) -> None:
    """Record a file server; the loop starts the run that keeps it."""
    if transaction.execute(select(_SERVERS.c.name).where(_SERVERS.c.name == new.name)).first() is not None:
        hint = f"`muster fileserver show {new.name}` shows it."
        raise errors.Conflict(f"there is a file server {new.name} already", hint)
    if transaction.execute(select(tables.datastores).where(tables.datastores.c.name == new.name)).first() is not None:
        raise errors.Conflict(
            f"there is a datastore {new.name} already, and a file server is named like its datastore",
            "Choose another name.",
        )
    now = clock.now()
    row = {
        "name": new.name, "owner_key": secrets.token_hex(16), "size_bytes": new.size_bytes, "cluster": new.cluster,
        "wanted_folder": new.folder, "clients": _clients(context, transaction, new), "description": new.description,
        "run_id": None, "attempt": 0, "address": None, "port": 0, "folder": None, "used_bytes": 0, "trouble": None,
        "has_served": False, "removes": False, "created_by": caller.subject, "created_at": now, "updated_at": now,
    }  # fmt: skip
    transaction.execute(insert(_SERVERS), row)
    wake(context, transaction)


def _clients(context: Context, transaction: Transaction, new: NewFileServer) -> str:
    """The network that may read: as given, or the cluster's; NFS has no other protection."""
    row = clusters.find(transaction, new.cluster)
    here = context.nodes.engines.on_this_machine(row.engine)
    if here and new.clients is not None and not ip_network(new.clients, strict=False).is_loopback:
        raise errors.JobError(
            f"nodes of {new.cluster} are this machine and listen on its loopback address, so that {new.clients} "
            "could not read from the file server",
            "Choose a cluster on machines of their own (--cluster), or leave --clients out.",
        )
    if new.clients is not None:
        return new.clients
    if here:
        return THIS_MACHINE
    subnet = clusters.options_of(row).subnet
    if network_of(subnet) is None:
        raise errors.JobError(
            f"who may read from the file server {new.name} is not known: the cluster {new.cluster} has no subnet, and "
            "NFS does not ask for a password",
            "Give the network of the nodes: --clients 10.1.0.0/16.",
        )
    try:
        check_clients(str(subnet))
    except ValueError as error:
        raise errors.JobError(f"the subnet of {new.cluster}: {error}", "Give --clients.") from error
    return str(subnet)


def find(connection: Connection | Transaction, name: str) -> Row[Any]:
    """A file server's row, or a refusal that names the known ones."""
    row = connection.execute(select(_SERVERS).where(_SERVERS.c.name == name)).first()
    if row is None:
        known = connection.execute(select(_SERVERS.c.name).order_by(_SERVERS.c.name).limit(20)).scalars().all()
        hint = f"There are: {', '.join(known)}." if known else f"`muster fileserver create {name} --size …` makes one."
        raise errors.NotFound(f"there is no file server {name!r}", hint)
    return row


def listed(connection: Connection) -> list[Row[Any]]:
    return list(connection.execute(select(_SERVERS).order_by(_SERVERS.c.name)).all())


def of_run(connection: Connection | Transaction, run: str) -> Row[Any]:
    """The file server that a run keeps; NotFound for any other run."""
    row = connection.execute(select(_SERVERS).where(_SERVERS.c.run_id == run)).first()
    if row is None:
        raise errors.NotFound(f"the run {run} keeps no file server", "Only those that do report here.")
    return row


def change(context: Context, transaction: Transaction, name: str, **columns: Any) -> None:
    """Change a file server's row, and wake the loop to look at it."""
    values = {**columns, "updated_at": clock.now()}
    transaction.execute(update(_SERVERS).where(_SERVERS.c.name == name).values(values))
    wake(context, transaction)


def wake(context: Context, transaction: Transaction) -> None:
    transaction.after_commit.append(lambda: context.hub.wake_soon(context.fileservers.changed.set))


def resize(context: Context, transaction: Transaction, name: str, changes: FileServerChanges) -> None:
    """Change how much a file server may hold; never below what it holds now."""
    row = find(transaction, name)
    if changes.size_bytes < row.used_bytes:
        raise errors.Conflict(
            f"the file server {name} holds {size(row.used_bytes)}, more than {size(changes.size_bytes)}",
            "Give a larger --size; what it holds goes only with the file server.",
        )
    change(context, transaction, name, size_bytes=changes.size_bytes)


# Fills


def fills(connection: Connection | Transaction, name: str) -> list[Row[Any]]:
    return list(connection.execute(select(_FILLS).where(_FILLS.c.server == name).order_by(_FILLS.c.id)).all())


def add_fill(context: Context, transaction: Transaction, name: str, new: NewFill, caller: Caller) -> None:
    """Have a file server copy a source; asked again, it fetches what has changed since."""
    row = find(transaction, name)
    if row.removes:
        raise errors.Conflict(f"the file server {name} is being deleted")
    to = safe_path(new.to)
    source = _checked(context, transaction.connection, name, new.source)
    mine = _FILLS.c.server == name, _FILLS.c.path == to
    taken = transaction.execute(select(_FILLS).where(*mine)).all()
    # One that failed before it found a file frees its folder for the next: its source may have been mistyped.
    if others := [fill.source for fill in taken if fill.source != source and not _came_to_nothing(fill)]:
        raise errors.Conflict(
            f"{name}/{to or ''} is filled from {others[0]}: files of two sources would mix there",
            "Choose another folder: --to SUBFOLDER.",
        )
    transaction.execute(delete(_FILLS).where(*mine))
    progress = to_json(FillProgress(0, "waiting"))
    now = clock.now()
    # Never the id of an earlier fill: the node records by it what it has copied.
    kept = {
        "id": int(now * 1e6), "server": name, "source": source, "path": to, "progress": progress,
        "created_by": caller.subject, "created_at": now,
    }  # fmt: skip
    transaction.execute(insert(_FILLS), kept)
    wake(context, transaction)


def _came_to_nothing(fill: Row[Any]) -> bool:
    progress = from_json(FillProgress, fill.progress)
    return progress.state == "failed" and not progress.total_files


def _checked(context: Context, connection: Connection, name: str, source: str) -> str:
    """The source with its version fixed; refused where no node could read it."""
    if not rules.is_address(source):
        raise errors.JobError(
            f"{source!r} is no address of a datastore or a data asset",
            "Write azureml://datastores/NAME/paths/FOLDER or azureml:ASSET:VERSION; `muster data upload` brings a "
            "folder of this machine into a datastore.",
        )
    location = parse_address(source)
    if location.kind == "asset":
        asset = assets.find(connection, location.store, location.version)
        return f"azureml:{asset.name}:{asset.version}"
    if location.kind == "local":
        raise errors.JobError(f"{source} is a path of one machine", "Name a datastore, or upload it into one.")
    store = grants.find_store(context, connection, location)
    if store is not None and store[0].name == name:
        raise errors.JobError(f"{source} is on the file server {name} itself", "Name another datastore.")
    return source


# Deletion


def register_store(context: Context, transaction: Transaction, row: Row[Any], address: str, port: int) -> None:
    """The datastore by which jobs name the file server's files."""
    options: Json = {
        "path": str(FileServerPaths(Path(row.folder)).data),
        "server": f"{address}:{port}",
        "export": f"/{row.name}",
    }
    known = transaction.execute(select(tables.datastores).where(tables.datastores.c.name == row.name)).first()
    if known is not None and known.options == options:
        return
    kept = {
        "name": row.name, "kind": "nfs", "options": options, "created_at": known.created_at if known else clock.now(),
        "description": "a file server", "owner": row.created_by, "sealed": None,
    }  # fmt: skip
    upsert(transaction, tables.datastores, kept)
    transaction.after_commit.append(lambda: context.data.forget(row.name))


def begin_removal(context: Context, transaction: Transaction, name: str, caller: Caller) -> Row[Any]:
    """Refuse while something uses its files; otherwise it is deleted once its process has removed them."""
    row = find(transaction, name)
    mounting = [
        item.name for item in transaction.execute(select(tables.clusters))
        if any(mount.file_server == name for mount in clusters.options_of(item).mounts)
    ]  # fmt: skip
    if mounting:
        raise errors.Conflict(
            f"the cluster {mounting[0]} mounts the file server {name}",
            f"Take it out first: `muster cluster set {mounting[0]} mounts=…`.",
        )
    if transaction.execute(select(tables.datastores).where(tables.datastores.c.name == name)).first() is not None:
        datastores.remove(context, transaction, name, caller)
    change(context, transaction, name, removes=True)
    return row


def forget(context: Context, transaction: Transaction, name: str) -> None:
    transaction.execute(delete(_FILLS).where(_FILLS.c.server == name))
    transaction.execute(delete(_SERVERS).where(_SERVERS.c.name == name))
    wake(context, transaction)
