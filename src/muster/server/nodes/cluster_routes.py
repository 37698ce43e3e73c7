"""Clusters: create, show, resize, stop, start, delete; their nodes; what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from sqlalchemy import Connection, delete, insert, select, update

from muster import errors
from muster.clusters.options import parse_options
from muster.engines.base import Cluster, NodeOffer
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.nodes import clusters, costs
from muster.server.runs import attempts, changes
from muster.wire import states

router = APIRouter(tags=["clusters"])

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_UNFINISHED = (*states.ACTIVE, states.QUEUED)
_RUNS = tables.runs


class ClusterBody(BaseModel):
    name: str = Field(pattern=_NAME)
    engine: str = "local"
    options: dict[str, Any] = {}


class ClusterChanges(BaseModel):
    """The body of `PATCH clusters/NAME`; a null option goes back to its default."""

    options: dict[str, Any] = {}
    state: Literal["ready", "stopped"] | None = None
    now: bool = False
    """End runs on nodes that go, instead of waiting for them; they are queued again."""


class NodeChanges(BaseModel):
    """The body of `PATCH clusters/NAME/nodes/NODE`."""

    cordoned: bool
    reason: str = "by hand"


@router.get("/clusters")
async def list_clusters(context: ContextOf) -> list[dict[str, Any]]:
    """Compute targets with their nodes."""
    return await context.database.read(
        lambda c: [_view(context, c, row) for row in c.execute(CLUSTERS.order_by("name")).all()]
    )


@router.post("/clusters", status_code=201)
async def create_cluster(body: ClusterBody, context: ContextOf) -> dict[str, Any]:
    """Create a compute target."""
    # Engines may have to ask around, which takes a while.
    notices = await asyncio.to_thread(_check, context, Cluster(body.name, body.engine, body.options))

    def work(transaction: Transaction) -> None:
        if transaction.execute(select(tables.clusters).where(tables.clusters.c.name == body.name)).first():
            raise errors.Conflict(
                f"there is a cluster {body.name!r} already", "Choose another name, or delete it first."
            )
        row = {**body.model_dump(), "state": clusters.READY, "created_at": time.time()}
        transaction.execute(insert(tables.clusters).values(**row))

    await context.database.write(work)
    if context.open_door is not None:
        await context.open_door()
    context.hub.clusters.set()
    return {**(await show_cluster(body.name, context)), "notices": notices}


@router.get("/clusters/{name}")
async def show_cluster(name: str, context: ContextOf) -> dict[str, Any]:
    """One compute target."""
    return await context.database.read(lambda c: _view(context, c, clusters.find(c, name)))


@router.patch("/clusters/{name}")
async def change_cluster(name: str, body: ClusterChanges, context: ContextOf) -> dict[str, Any]:
    """Resize, stop or start a cluster; nodes that go finish their runs first, unless `now`."""
    if name == clusters.BUILT_IN:
        raise errors.Conflict("the cluster `local` is this machine and stays as it is", "Create one of your own.")
    notices: list[str] = []

    def work(transaction: Transaction) -> None:
        row = clusters.find(transaction, name)
        if row.state == clusters.DELETING:
            raise errors.Conflict(f"the cluster {name} is being deleted")
        merged = {**row.options, **body.options}
        options = {key: value for key, value in merged.items() if value is not None}
        notices.extend(_check(context, Cluster(name, row.engine, options)))
        values = {"options": options, "state": body.state or row.state}
        transaction.execute(update(tables.clusters).where(tables.clusters.c.name == name).values(**values))
        if body.now:
            changed = clusters.find(transaction, name)
            stays = set() if changed.state == clusters.STOPPED else _names(context, clusters.cluster_of(changed))
            _clear(context, transaction, name, stays)

    await context.database.write(work)
    context.hub.changed(queue=True)
    return {**(await show_cluster(name, context)), "notices": notices}


@router.delete("/clusters/{name}", status_code=204)
async def delete_cluster(
    name: str, context: ContextOf, caller: CallerOf, mode: Literal["refuse", "drain", "now"] = "refuse"
) -> Response:
    """Delete a compute target: not while runs use it, once they have ended (`drain`), or with them (`now`)."""
    if name == clusters.BUILT_IN:
        raise errors.Conflict("the cluster `local` is this machine and stays")

    def work(transaction: Transaction) -> None:
        row = clusters.find(transaction, name)
        unfinished = select(_RUNS.c.id).where(_RUNS.c.compute == name, _RUNS.c.status.in_(_UNFINISHED))
        ids = list(transaction.execute(unfinished).scalars())
        if ids and mode == "refuse":
            raise errors.Conflict(
                f"{len(ids)} runs use {name}, such as {ids[0]}",
                "Use --drain to let them end first, or --now to cancel them.",
            )
        for run_id in ids if mode == "now" else ():
            changes.cancel(context, transaction, run_id, False, caller.subject)
        if ids or clusters.load_states(transaction).get(name):
            values = {"state": clusters.DELETING}
            transaction.execute(update(tables.clusters).where(tables.clusters.c.name == row.name).values(**values))
        else:
            transaction.execute(delete(tables.clusters).where(tables.clusters.c.name == name))

    await context.database.write(work)
    context.hub.changed(queue=True)
    return Response(status_code=204)


@router.patch("/clusters/{name}/nodes/{node}")
async def change_node(name: str, node: str, body: NodeChanges, context: ContextOf) -> dict[str, Any]:
    """Cordon a node, so that nothing new starts there, or take it back."""
    why = body.reason if body.cordoned else None

    def work(transaction: Transaction) -> None:
        clusters.find(transaction, name)
        clusters.cordon(transaction, name, [node], why)

    await context.database.write(work)
    context.hub.changed(queue=True)
    return await show_cluster(name, context)


@router.get("/clusters/{name}/nodes/{node}/history")
async def node_history(name: str, node: str, context: ContextOf) -> list[dict[str, Any]]:
    """The states of a node so far, oldest first."""
    history = tables.node_history
    query = select(history).where(history.c.cluster == name, history.c.name == node).order_by(history.c.id)
    rows = await context.database.read(lambda c: c.execute(query).all())
    return [{"at": row.at, "state": row.state, "reason": row.reason} for row in rows]


@router.get("/clusters/{name}/nodes/{node}/setup")
async def setup_log(name: str, node: str, context: ContextOf) -> dict[str, str]:
    """What a node's set-up command printed."""
    location = f"clusters/{name}/{node}/setup.log"
    if not context.store.exists(location):
        raise errors.NotFound(f"{node} of {name} has run no set-up command")
    with context.store.open(location) as file:
        return {"log": file.read().decode(errors="replace")}


@router.get("/cost")
async def cost(context: ContextOf, by: Literal["run", "user", "cluster"] = "run") -> dict[str, Any]:
    """Node hours and, where prices are known, their cost."""
    return await context.database.read(lambda c: costs.report(c, by, time.time()))


def _check(context: Context, cluster: Cluster) -> list[str]:
    if cluster.engine not in context.engines:
        known = ", ".join(sorted(context.engines))
        raise errors.JobError(f"there is no engine {cluster.engine!r}", f"Engines: {known}.")
    parse_options(cluster.options)
    return context.engines[cluster.engine].check(cluster)


def _names(context: Context, cluster: Cluster) -> set[str]:
    return {offer.name for offer in context.engines[cluster.engine].nodes(cluster)}


def _clear(context: Context, transaction: Transaction, name: str, stays: set[str]) -> None:
    """End the attempts on nodes that go; their runs are queued again."""
    placements = tables.placements
    rows = transaction.execute(
        select(placements.c.run_id, placements.c.node).where(
            placements.c.cluster == name, placements.c.phase.in_(states.HOLDS_RESOURCES)
        )
    ).all()
    for run_id in sorted({row.run_id for row in rows if row.node not in stays}):
        attempts.preempt(context, transaction, run_id, f"nodes of {name} were taken away")


def _view(context: Context, connection: Connection, row: Any) -> dict[str, Any]:
    cluster, options = clusters.cluster_of(row), clusters.options_of(row)
    known = clusters.load_states(connection).get(row.name, {})
    placements = tables.placements
    held = connection.execute(
        select(placements.c.node, placements.c.host, placements.c.run_id).where(
            placements.c.cluster == row.name, placements.c.phase.in_(states.HOLDS_RESOURCES)
        )
    ).all()
    agents = {
        item.name: item for item in connection.execute(select(tables.nodes).where(tables.nodes.c.cluster == row.name))
    }
    offers = {offer.name: offer for offer in context.engines[cluster.engine].nodes(cluster)}
    queued = connection.execute(
        select(_RUNS.c.id).where(_RUNS.c.compute == row.name, _RUNS.c.status == states.QUEUED).limit(1000)
    ).all()
    size = options.size
    first = next(iter(offers.values()), None)
    return {
        "name": row.name,
        "engine": row.engine,
        "state": row.state,
        "options": row.options,
        "created_at": row.created_at,
        "min_nodes": options.min_nodes,
        "max_nodes": len(offers),
        "lent": context.engines[cluster.engine].queues,
        "idle_seconds_before_scaledown": options.idle_seconds_before_scaledown,
        "vm_priority": options.vm_priority,
        "price_per_hour": options.hourly_price,
        "size": vars(size) if size else None,
        "node": {"cpus": first.cpus, "gpus": len(first.gpus), "memory_bytes": first.memory_bytes} if first else None,
        "queued": len(queued),
        "nodes": [_lent_node(offer, held) for offer in offers.values()]
        if context.engines[cluster.engine].queues
        else [
            _node(context, name, agents.get(name), known.get(name), [item.run_id for item in held if item.node == name])
            for name in sorted({*agents, *known}, key=_natural)
        ],
    }


def _lent_node(offer: NodeOffer, held: Sequence[Any]) -> dict[str, Any]:
    """A node that somebody else manages, as they tell of it."""
    return {
        "name": offer.name,
        "state": offer.state,
        "reason": offer.reason,
        "since": None,
        "cordoned": None,
        "strikes": 0,
        "runs": [item.run_id for item in held if item.host == offer.host],
        "host": offer.host,
        "pid": None,
        "address": offer.address,
        "cpus": offer.cpus,
        "memory_bytes": offer.memory_bytes,
        "gpus": list(offer.gpus),
    }


def _node(context: Context, name: str, agent: Any, state: Any, runs: list[str]) -> dict[str, Any]:
    if state is not None:
        shown, reason, since = state.state, state.reason, state.since
        if runs and shown == clusters.IDLE:
            shown, reason = clusters.RUNNING, ""
    else:
        shown = "running" if runs else "idle" if name in context.hub.contacts else "away"
        reason, since = "", agent.seen_at
    return {
        "name": name,
        "state": shown,
        "reason": reason if state is None or state.cordoned is None else f"cordoned: {state.cordoned}",
        "since": since,
        "cordoned": state.cordoned if state is not None else None,
        "strikes": state.strikes if state is not None else 0,
        "runs": runs,
        "host": agent.host if agent else None,
        "pid": agent.pid if agent else None,
        "address": agent.address if agent else None,
        "cpus": agent.cpus if agent else None,
        "memory_bytes": agent.memory_bytes if agent else None,
        "gpus": agent.gpus if agent else None,
    }


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)
