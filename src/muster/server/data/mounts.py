"""What nodes of a cluster mount for their jobs, and whether a job's inputs lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from muster import errors
from muster.clusters.options import Mount, Options, parse_options
from muster.job import rules
from muster.job.parts import Input
from muster.job.spec import JobSpec
from muster.paths import FileServerPaths
from muster.server.context import Context
from muster.server.data import datastores, grants
from muster.server.database import tables
from muster.storage.addresses import parse_address
from muster.wire.node.mounts import MountOrder, MountOrders

_SERVERS = tables.file_servers


def check(context: Context, connection: Connection, options: Options) -> None:
    """Refuse mounts of file servers and datastores that do not exist."""
    for mount in options.mounts:
        if mount.file_server is not None:
            _server(connection, mount.file_server)
        elif mount.datastore is not None:
            datastores.find(context, connection, parse_address(mount.datastore).store)


def check_inputs(context: Context, connection: Connection, spec: JobSpec, cluster: Any) -> None:
    """Refuse a job whose inputs lie on a file server that its nodes do not see."""
    if context.nodes.engines.on_this_machine(cluster.engine):
        return
    mounted = grants.mounted(cluster.options)
    for name, item in spec.inputs.items():
        if not isinstance(item, Input) or not item.path or not rules.is_address(item.path):
            continue
        location = parse_address(item.path)
        if location.kind != "datastore" or location.store in mounted:
            continue
        if connection.execute(select(_SERVERS.c.name).where(_SERVERS.c.name == location.store)).first() is not None:
            raise errors.JobError(
                f"inputs.{name} is on the file server {location.store}, which {cluster.name} does not mount",
                f"Mount it: `muster cluster set {cluster.name} "
                f"'mounts=[{{source: \"fileserver:{location.store}\", target: {location.store}}}]'`.",
            )


def orders(context: Context, connection: Connection, node: str, run: str, attempt: int) -> MountOrders:
    """What is mounted for an attempt on a node, with fresh credentials."""
    holder, _ = grants.attempt_of(context, connection, node, run, attempt)
    placements, clusters = tables.placements, tables.clusters
    options = connection.execute(
        select(clusters.c.options)
        .join(placements, placements.c.cluster == clusters.c.name)
        .where(placements.c.run_id == run, placements.c.number == attempt, placements.c.node == node)
    ).scalar()
    wanted = parse_options(options or {}).mounts
    return MountOrders(tuple(_order(context, connection, mount, holder) for mount in wanted))


def _order(context: Context, connection: Connection, mount: Mount, holder: grants.Holder) -> MountOrder:
    try:
        if mount.file_server is not None:
            return _of_server(connection, mount, mount.file_server, holder)
        if mount.nfs is not None:
            host, port, export = mount.nfs
            return MountOrder(mount.target, "nfs", mount.source, mount.read_only, host, port, export)
        item = Input(path=mount.source, mode="download")
        access = grants.input_access(context, connection, item, holder)
        assert access is not None
        if access.kind == "file":
            return MountOrder(mount.target, "folder", mount.source, folder=access.url)
        if access.manifest_by_reference:
            access = grants.with_files(access, grants.manifest(context, connection, item, holder).files)
        return MountOrder(mount.target, "fuse", mount.source, access=access)
    except errors.MusterError as error:
        return MountOrder(mount.target, "refused", mount.source, why=error.message, next=error.hint or "")


def _of_server(connection: Connection, mount: Mount, name: str, holder: grants.Holder) -> MountOrder:
    row = _server(connection, name)
    if row.folder is None or row.address is None or not row.port:
        raise errors.Conflict(f"the file server {name} does not serve yet", f"See `muster fileserver show {name}`.")
    if holder.same_machine and row.clients == "127.0.0.1/32":
        # Its folder is on this machine: NFS would only be in the way.
        return MountOrder(mount.target, "folder", mount.source, folder=str(FileServerPaths(Path(row.folder)).data))
    return MountOrder(mount.target, "nfs", mount.source, True, row.address, row.port, f"/{name}")


def _server(connection: Connection, name: str) -> Any:
    row = connection.execute(select(_SERVERS).where(_SERVERS.c.name == name)).first()
    if row is None:
        known = connection.execute(select(_SERVERS.c.name).order_by(_SERVERS.c.name)).scalars().all()
        hint = f"There are: {', '.join(known)}." if known else f"`muster fileserver create {name} --size …` makes one."
        raise errors.NotFound(f"there is no file server {name!r}", hint)
    return row
