"""The loops: load, decide (pure), apply. One wakes on changes of the queue, one watches over nodes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import select

from muster.control import states
from muster.control.schedule import Held, Node, Waiting, schedule
from muster.defaults import NODE_LOST_S
from muster.engines.base import Allocation, Cluster
from muster.protocol import AgentConfig
from muster.server import attempts, tables
from muster.server.access import write_private
from muster.server.context import Context
from muster.server.database import Transaction

log = logging.getLogger("muster.server")

_LOOKAHEAD = 64
_WATCH_S = 1.0
_REVIVE_S = 10.0


async def scheduler(context: Context) -> None:
    """Start what fits, whenever something in the queue or on the nodes has changed."""
    while True:
        await context.hub.scheduler.wait()
        context.hub.scheduler.clear()
        try:
            started = await context.database.write(lambda transaction: schedule_pass(context, transaction))
        except Exception:
            log.exception("a pass of the scheduler failed; it is tried again")
            await asyncio.sleep(1.0)
            context.hub.scheduler.set()
            continue
        if started:
            await ensure_agents(context, started)


def schedule_pass(context: Context, transaction: Transaction) -> list[tuple[str, str]]:
    """One pass; returns the (cluster, node) pairs that got something to do."""
    runs, placements = tables.runs, tables.placements
    queued = transaction.execute(
        select(
            runs.c.id,
            runs.c.display_name,
            runs.c.compute,
            runs.c.num_nodes,
            runs.c.ranks_per_node,
            runs.c.gpus_per_node,
        )
        .where(runs.c.status == states.QUEUED)
        .order_by(runs.c.priority.desc(), runs.c.seq)
        .limit(_LOOKAHEAD)
    ).all()
    if not queued:
        context.reasons.clear()
        return []
    held = transaction.execute(
        select(placements.c.run_id, placements.c.host, placements.c.ranks, placements.c.gpus, runs.c.display_name)
        .join(runs, runs.c.id == placements.c.run_id)
        .where(placements.c.phase.in_(states.HOLDS_RESOURCES))
    ).all()
    clusters = {row.name: row for row in transaction.execute(select(tables.clusters))}
    nodes = {name: offered(context, cluster_of(row)) for name, row in clusters.items()}
    decision = schedule(
        [
            Waiting(
                row.id, row.display_name or row.id, row.compute, row.num_nodes, row.ranks_per_node, row.gpus_per_node
            )
            for row in queued
        ],
        nodes,
        [Held(row.run_id, row.display_name or row.run_id, row.host, row.ranks, tuple(row.gpus)) for row in held],
    )
    context.reasons.clear()
    context.reasons.update(decision.reasons)
    for start in decision.starts:
        attempts.begin(context, transaction, start)
    compute = {row.id: row.compute for row in queued}
    return sorted({(compute[start.run_id], place.node.name) for start in decision.starts for place in start.places})


async def watch_nodes(context: Context) -> None:
    """Notice agents that are gone, bring them back to deliver, and give up on those that stay away."""
    given: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_WATCH_S)
        try:
            open_nodes = await context.database.read(_open_nodes)
            lives = await _poll(context, open_nodes)
            for cluster, node in open_nodes:
                life, why = lives.get(node, ("gone", "its cluster was deleted"))
                silent = life == "up" and context.hub.silent_s(node) > NODE_LOST_S
                gone = life == "gone" or silent
                if not gone:
                    given.pop(node, None)
                    continue
                first = given.setdefault(node, loop.time())
                waited = loop.time() - first
                context.hub.contacts.pop(node, None)
                give_up = waited > _REVIVE_S
                await context.database.write(partial(attempts.lose_node, context, node=node, give_up=give_up, why=why))
                if give_up:
                    given.pop(node, None)
                else:
                    await ensure_agents(context, [(cluster, node)])
        except Exception:
            log.exception("watching over the nodes failed; it is tried again")


async def ensure_agents(context: Context, wanted: Sequence[tuple[str, str]]) -> None:
    """Ask the engines for the agents that are not connected."""
    absent = [(cluster, node) for cluster, node in wanted if node not in context.hub.contacts]
    if not absent:
        return
    rows = await context.database.read(lambda c: {row.name: row for row in c.execute(select(tables.clusters))})
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
    lives = await _poll(context, known)
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
    )
    path = context.paths.node(node).config
    write_private(path, json.dumps(config.__dict__))
    return config


def offered(context: Context, cluster: Cluster) -> list[Node]:
    return [
        Node(offer.name, offer.host, offer.address, offer.cpus, offer.gpus)
        for offer in context.engines[cluster.engine].nodes(cluster)
    ]


def cluster_of(row: object) -> Cluster:
    return Cluster(row.name, row.engine, row.options)  # type: ignore[attr-defined]


def _open_nodes(connection: object) -> list[tuple[str, str]]:
    placements = tables.placements
    rows = connection.execute(  # type: ignore[attr-defined]
        select(placements.c.cluster, placements.c.node).where(placements.c.phase.in_(states.IS_OPEN)).distinct()
    )
    return sorted((row.cluster, row.node) for row in rows)


async def _poll(context: Context, nodes: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """What the engines say of nodes: alive or not, and why."""
    rows = await context.database.read(lambda c: {row.name: row for row in c.execute(select(tables.clusters))})
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
