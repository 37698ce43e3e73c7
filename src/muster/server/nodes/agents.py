"""Node agents: requested from engines, and watched. The only module that asks which kind an engine is."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, select

from muster.engines.base import Cluster, NodeState
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import CLUSTERS
from muster.server.nodes.clusters import Held, cluster_of
from muster.server.nodes.owned import OwnedNodes
from muster.server.nodes.queued import QueuedNodes
from muster.wire.clusters import NodeView

log = logging.getLogger("muster.server")


def nodes_of(context: Context, cluster: Cluster) -> OwnedNodes | QueuedNodes | UnusableNodes:
    """The nodes of a cluster, as the kind of its engine wants."""
    if owner := context.nodes.engines.owner(cluster.engine):
        return OwnedNodes(context, cluster, owner)
    if queue := context.nodes.engines.queue(cluster.engine):
        return QueuedNodes(context, cluster, queue)
    return UnusableNodes(context.nodes.engines.trouble(cluster.engine))


@dataclass(frozen=True)
class UnusableNodes:
    """Nodes of a cluster whose engine cannot be used now: agents that are up work on, and none is given up."""

    why: str

    def start(self, nodes: Sequence[str]) -> None:
        """Nothing starts without an engine."""

    def poll(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        return {node: NodeState("starting", self.why) for node in nodes}

    def views(self, connection: Connection, held: Sequence[Held]) -> list[NodeView]:
        return []


def bring_agents(context: Context, wanted: Sequence[tuple[str, str]]) -> None:
    """Request the agents of (cluster, node) pairs in the background; callable from any thread.

    An engine may take its time: the queues of other clusters go on meanwhile.
    """
    for name in sorted({cluster for cluster, _ in wanted}):
        context.hub.spawn(ensure_agents(context, [pair for pair in wanted if pair[0] == name]))


async def ensure_agents(context: Context, wanted: Sequence[tuple[str, str]]) -> None:
    """Request the agents of (cluster, node) pairs that are not connected from their engines.

    An engine that fails stops nobody else; the loop that watches over nodes asks again for those that do not come.
    """
    absent = [(cluster, node) for cluster, node in wanted if node not in context.hub.contacts]
    for cluster, nodes in await _by_cluster(context, absent):
        async with context.nodes.asking[cluster.name]:
            try:
                await asyncio.to_thread(nodes_of(context, cluster).start, nodes)
            except Exception:
                log.exception("the agents of %s on %s were not started", ", ".join(nodes), cluster.name)


async def living_agents(context: Context) -> list[str]:
    """Nodes whose agents are still alive, as their engines see it."""
    contacts, engines = context.hub.contacts, context.nodes.engines
    columns = (tables.nodes.c.cluster, tables.nodes.c.name, tables.clusters.c.engine)
    joined = select(*columns).join(tables.clusters, tables.clusters.c.name == tables.nodes.c.cluster)
    rows = await context.database.read(lambda c: c.execute(joined).all())
    # A silent node that came with an attempt is not asked about: that would only have its leftovers delivered now.
    known = [(row.cluster, row.name) for row in rows if row.name in contacts or engines.queue(row.engine) is None]
    begun = await context.database.read(partial(_begun_here, context))
    lives = await poll(context, [*known, *(begun - set(known))])
    # One that has said hello is up even if its engine does not confirm it yet; for a process of this machine it will.
    coming = {*contacts, *(node for _, node in begun)}
    return [node for node, (life, _) in lives.items() if life == "up" or (life == "starting" and node in coming)]


def _begun_here(context: Context, connection: Connection) -> set[tuple[str, str]]:
    """Nodes of this machine whose agents were started and have not said hello yet."""
    waited = context.nodes.agent_tokens.keys() - context.hub.contacts.keys()
    found = [cluster_of(row) for row in connection.execute(CLUSTERS)] if waited else []
    owners = [(cluster, context.nodes.engines.owner(cluster.engine)) for cluster in found]
    return {
        (cluster.name, offer.name)
        for cluster, engine in owners
        if engine is not None and engine.on_this_machine
        for offer in engine.nodes(cluster)
        if offer.name in waited
    }


async def poll(context: Context, nodes: Sequence[tuple[str, str]]) -> dict[str, NodeState]:
    """What the engines report of (cluster, node) pairs; a deleted cluster is left out."""
    found: dict[str, NodeState] = {}
    for cluster, names in await _by_cluster(context, nodes):
        found |= await asyncio.to_thread(nodes_of(context, cluster).poll, names)
    return found


async def _by_cluster(context: Context, nodes: Sequence[tuple[str, str]]) -> list[tuple[Cluster, list[str]]]:
    if not nodes:
        return []
    rows = await context.database.read(lambda c: {row.name: row for row in c.execute(CLUSTERS)})
    names: dict[str, list[str]] = defaultdict(list)
    for cluster, node in nodes:
        names[cluster].append(node)
    return [(cluster_of(rows[name]), mine) for name, mine in sorted(names.items()) if name in rows]
