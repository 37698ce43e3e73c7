"""Clusters are created, changed, deleted and shown."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, insert, select, update

from muster import errors
from muster.clusters.options import mount_notices, parse_options
from muster.control.access import Caller
from muster.engines.base import Cluster
from muster.engines.registry import DEFAULT
from muster.server.context import Context
from muster.server.data import mounts
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS, message_of
from muster.server.nodes import clusters
from muster.server.nodes.agents import nodes_of
from muster.server.nodes.clusters import Held
from muster.server.runs import attempts, changes
from muster.wire import states
from muster.wire.clusters import (
    ClusterChanges,
    ClusterView,
    DeleteMode,
    NewCluster,
    NodeShape,
    NodeStateView,
)

_CLUSTERS, _PLACEMENTS, _RUNS = tables.clusters, tables.placements, tables.runs
_UNFINISHED = (*states.ACTIVE, states.QUEUED)
_COUNTED = 1000
_PATIENCE_S = 2.0
"""How long to wait for a cluster's own manager when somebody looks at the cluster."""


def check(context: Context, cluster: Cluster) -> list[str]:
    """Refuse settings that cannot work; returns notices. Slow where an engine has to ask its manager."""
    engine = context.nodes.engines.get(cluster.engine)
    options = parse_options(cluster.options)
    if options.mounts:
        context.database.read_now(lambda connection: mounts.check(context, connection, options))
    return [*engine.check(cluster), *mount_notices(options)]


def create(transaction: Transaction, wanted: NewCluster) -> None:
    """Record a cluster whose settings were checked."""
    if transaction.execute(select(_CLUSTERS).where(_CLUSTERS.c.name == wanted.name)).first():
        raise errors.Conflict(f"there is a cluster {wanted.name!r} already", "Choose another name, or delete it first.")
    transaction.execute(insert(_CLUSTERS).values(**vars(wanted), state=clusters.READY, created_at=time.time()))


def changed(connection: Connection | Transaction, name: str, changes: ClusterChanges) -> Cluster:
    """The cluster as it would be with these changes."""
    if name == DEFAULT:
        raise errors.Conflict(f"the cluster `{name}` is this machine and stays as it is", "Create one of your own.")
    row = clusters.find(connection, name)
    if row.state == clusters.DELETING:
        raise errors.Conflict(f"the cluster {name} is being deleted")
    options = {key: value for key, value in {**row.options, **changes.options}.items() if value is not None}
    return Cluster(name, row.engine, options)


def change(context: Context, transaction: Transaction, name: str, changes: ClusterChanges) -> None:
    """Record changes that were checked."""
    cluster = changed(transaction, name, changes)
    state = changes.state or clusters.find(transaction, name).state
    values = {"options": cluster.options, "state": state}
    transaction.execute(update(_CLUSTERS).where(_CLUSTERS.c.name == name).values(**values))
    if changes.now:
        stays = set() if state == clusters.STOPPED else {node.name for node in clusters.offered(context, cluster)}
        _preempt_elsewhere(context, transaction, name, stays)


def remove(context: Context, transaction: Transaction, name: str, mode: DeleteMode, caller: Caller) -> None:
    """Delete a cluster: not while runs use it, once they have ended (`drain`), or with them (`now`)."""
    if name == DEFAULT:
        raise errors.Conflict(f"the cluster `{name}` is this machine and stays")
    clusters.find(transaction, name)
    unfinished = select(_RUNS.c.id).where(_RUNS.c.compute == name, _RUNS.c.status.in_(_UNFINISHED))
    ids = list(transaction.execute(unfinished).scalars())
    if ids and mode == "refuse":
        raise errors.Conflict(
            f"{len(ids)} runs use {name}, such as {ids[0]}",
            "Use --drain to let them end first, or --now to cancel them.",
        )
    if mode == "now":
        changes.cancel(context, transaction, ids, False, caller.subject)
    if ids or clusters.load_states(transaction).get(name):
        transaction.execute(update(_CLUSTERS).where(_CLUSTERS.c.name == name).values(state=clusters.DELETING))
    else:
        clusters.forget(context, transaction, name)


def _preempt_elsewhere(context: Context, transaction: Transaction, name: str, stays: set[str]) -> None:
    """End the attempts on nodes that go; their runs are queued again."""
    rows = transaction.execute(
        select(_PLACEMENTS.c.run_id, _PLACEMENTS.c.node).where(
            _PLACEMENTS.c.cluster == name, _PLACEMENTS.c.phase.in_(states.HOLDS_RESOURCES)
        )
    ).all()
    for run_id in sorted({row.run_id for row in rows if row.node not in stays}):
        attempts.preempt(context, transaction, run_id, f"nodes of {name} were taken away")


# What clusters are


def list_views(context: Context, connection: Connection) -> list[ClusterView]:
    return [_view(context, connection, row) for row in connection.execute(CLUSTERS.order_by("name")).all()]


def view(context: Context, connection: Connection, name: str) -> ClusterView:
    return _view(context, connection, clusters.find(connection, name))


def history(connection: Connection, cluster: str, node: str) -> list[NodeStateView]:
    """The states of a node so far, oldest first."""
    table = tables.node_history
    query = select(table).where(table.c.cluster == cluster, table.c.name == node).order_by(table.c.id)
    return [message_of(NodeStateView, row) for row in connection.execute(query)]


def _view(context: Context, connection: Connection, row: Any) -> ClusterView:
    cluster, options = clusters.cluster_of(row), clusters.options_of(row)
    engine = context.nodes.engines.owner(cluster.engine) or context.nodes.engines.queue(cluster.engine)
    trouble = engine.trouble(cluster, _PATIENCE_S) if engine is not None else context.nodes.engines.trouble(row.engine)
    offers = engine.nodes(cluster) if engine is not None else ()
    held = select(_PLACEMENTS.c.node, _PLACEMENTS.c.host, _PLACEMENTS.c.run_id).where(
        _PLACEMENTS.c.cluster == row.name, _PLACEMENTS.c.phase.in_(states.HOLDS_RESOURCES)
    )
    waiting = select(_RUNS.c.id).where(_RUNS.c.compute == row.name, _RUNS.c.status == states.QUEUED)
    return message_of(
        ClusterView,
        row,
        state=clusters.UNREACHABLE if trouble and row.state == clusters.READY else row.state,
        reason=trouble,
        min_nodes=options.min_nodes,
        max_nodes=len(offers),
        lent=context.nodes.engines.queue(cluster.engine) is not None,
        idle_seconds_before_scaledown=options.idle_seconds_before_scaledown,
        vm_priority=options.vm_priority,
        price_per_hour=options.hourly_price,
        size=options.size,
        node=NodeShape(offers[0].cpus, len(offers[0].gpus), offers[0].memory_bytes) if offers else None,
        queued=len(connection.execute(waiting.limit(_COUNTED)).all()),
        nodes=tuple(nodes_of(context, cluster).views(connection, [Held(*item) for item in connection.execute(held)])),
    )
