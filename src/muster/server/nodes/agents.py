"""Node agents: asked for from the engines, told what they need to know, looked after."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select

from muster.clusters.options import parse_options
from muster.defaults import LINGER_S
from muster.engines.base import Allocation, Cluster
from muster.host.files import PRIVATE, write_file
from muster.protocol import AgentConfig
from muster.server.context import Context
from muster.server.database import tables
from muster.server.nodes import allocations


async def ensure_agents(context: Context, wanted: Sequence[tuple[str, str]]) -> None:
    """Ask the engines for the agents that are not connected."""
    absent = [(cluster, node) for cluster, node in wanted if node not in context.hub.contacts]
    if not absent:
        return
    for allocation in await context.database.read(lambda c: allocations.group(context, c, absent)):
        if context.engines[allocation.cluster.engine].queues:
            await asyncio.to_thread(_hand_on, context, allocation)
        else:
            await asyncio.to_thread(context.engines[allocation.cluster.engine].allocate, _told(context, allocation))


def _hand_on(context: Context, named: Allocation) -> None:
    """In a thread: have an engine with a queue of its own bring the nodes of an attempt."""
    allocation = context.database.read_now(lambda c: allocations.whole(context, c, named))
    allocations.keep_script(context, allocation)
    context.engines[allocation.cluster.engine].allocate(_told(context, allocation))


def _told(context: Context, allocation: Allocation) -> Allocation:
    agents = tuple(agent_config(context, allocation.cluster, agent.node) for agent in allocation.agents)
    return replace(allocation, agents=agents)


async def living_agents(context: Context) -> list[str]:
    """Nodes whose agents are still there, as their engines see it."""
    known = await context.database.read(
        lambda c: [(row.cluster, row.name) for row in c.execute(select(tables.nodes.c.cluster, tables.nodes.c.name))]
    )
    lives = await poll(context, known)
    contacts = context.hub.contacts
    # One that has said hello is there, though its engine may not vouch for it yet.
    return [node for node, (life, _) in lives.items() if life == "up" or (life == "starting" and node in contacts)]


def agent_config(context: Context, cluster: Cluster, node: str) -> AgentConfig:
    """What an agent needs to know, written where only it can read it."""
    if node not in context.agent_tokens:
        context.agent_tokens[node] = context.tokens.create("agent", node)
    engine = context.engines[cluster.engine]
    offer = None if engine.queues else next((item for item in engine.nodes(cluster) if item.name == node), None)
    config = AgentConfig(
        node=node,
        cluster=cluster.name,
        allocation=cluster.name,
        root=str(context.paths.node(node).root),
        server=_ways(context, cluster) if engine.remote else context.addresses,
        token=context.agent_tokens[node],
        address="" if engine.queues else offer.address if offer else "127.0.0.1",
        gpus=offer.gpus if offer else None,
        pinned_certificate=context.certificate,
        setup=parse_options(cluster.options).setup,
        long_lived=not engine.queues,
        linger_s=float(cluster.options.get("linger_seconds", LINGER_S)) if engine.queues else None,
    )
    path = context.paths.node(node).config
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(config.__dict__), mode=PRIVATE)
    return config


async def poll(context: Context, nodes: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """What the engines say of nodes: alive or not, and why; one question to each engine."""
    found: dict[str, tuple[str, str]] = {}
    asked: dict[str, list[Allocation]] = defaultdict(list)
    for allocation in await context.database.read(lambda c: allocations.group(context, c, nodes)):
        asked[allocation.cluster.engine].append(allocation)
    for name, items in asked.items():
        polled = await asyncio.to_thread(context.engines[name].poll, items)
        for allocation in items:
            state = polled[allocation.id]
            found.update({node: (life, state.reason) for node, life in state.nodes.items()})
            if context.engines[name].queues:
                context.states[allocations.attempt_of(allocation.agents[0].node)] = state
    return found


def _ways(context: Context, cluster: Cluster) -> tuple[str, ...]:
    """How the nodes of a cluster reach the server: TLS first, a shared folder where that does not work."""
    files = f"file:{context.paths.spool}"
    chosen = cluster.options.get("connection", "auto")
    return {"tls": context.outside, "files": (files,)}.get(chosen) or (*context.outside, files)
