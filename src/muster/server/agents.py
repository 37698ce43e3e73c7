"""Node agents: asked for from the engines, told what they need to know, looked after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select

from muster.clusters.options import parse_options
from muster.engines.base import Allocation, Cluster
from muster.protocol import AgentConfig
from muster.server import tables
from muster.server.access import write_private
from muster.server.clusters import cluster_of
from muster.server.context import Context
from muster.server.records import CLUSTERS


async def ensure_agents(context: Context, wanted: Sequence[tuple[str, str]]) -> None:
    """Ask the engines for the agents that are not connected."""
    absent = [(cluster, node) for cluster, node in wanted if node not in context.hub.contacts]
    if not absent:
        return
    rows = await context.database.read(lambda c: {row.name: row for row in c.execute(CLUSTERS)})
    for name in sorted({cluster for cluster, _ in absent}):
        if name not in rows:
            continue
        cluster = cluster_of(rows[name])
        agents = tuple(agent_config(context, cluster, node) for owner, node in absent if owner == name)
        allocation = Allocation(id=name, cluster=cluster, agents=agents)
        await asyncio.to_thread(context.engines[cluster.engine].allocate, allocation)


async def living_agents(context: Context) -> list[str]:
    """Nodes whose agents are still there, as their engines see it."""
    known = await context.database.read(
        lambda c: [(row.cluster, row.name) for row in c.execute(select(tables.nodes.c.cluster, tables.nodes.c.name))]
    )
    lives = await poll(context, known)
    return [node for node, (life, _) in lives.items() if life == "up"]


def agent_config(context: Context, cluster: Cluster, node: str) -> AgentConfig:
    """What an agent needs to know, written where only it can read it."""
    if node not in context.agent_tokens:
        context.agent_tokens[node] = context.tokens.create("agent", node)
    offer = next((item for item in context.engines[cluster.engine].nodes(cluster) if item.name == node), None)
    config = AgentConfig(
        node=node,
        cluster=cluster.name,
        allocation=cluster.name,
        root=str(context.paths.node(node).root),
        server=context.addresses,
        token=context.agent_tokens[node],
        address=offer.address if offer else "127.0.0.1",
        gpus=offer.gpus if offer else None,
        pinned_certificate=context.certificate,
        setup=parse_options(cluster.options).setup,
    )
    path = context.paths.node(node).config
    write_private(path, json.dumps(config.__dict__))
    return config


async def poll(context: Context, nodes: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """What the engines say of nodes: alive or not, and why."""
    rows = await context.database.read(lambda c: {row.name: row for row in c.execute(CLUSTERS)})
    found: dict[str, tuple[str, str]] = {}
    for name in sorted({cluster for cluster, _ in nodes}):
        if name not in rows:
            continue
        cluster = cluster_of(rows[name])
        agents = tuple(
            replace(_NOBODY, node=node, cluster=name, root=str(context.paths.node(node).root))
            for owner, node in nodes
            if owner == name
        )
        allocation = Allocation(name, cluster, agents)
        polled = await asyncio.to_thread(context.engines[cluster.engine].poll, [allocation])
        for state in polled.values():
            found.update({node: (life, state.reason) for node, life in state.nodes.items()})
    return found


_NOBODY = AgentConfig(node="", cluster="", allocation="", root="", server=(), token="")
