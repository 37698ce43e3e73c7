"""The workspace itself: health, plans, clusters, models, datastores, shutdown."""

from __future__ import annotations

import os
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import Connection, delete, insert, select

from muster import errors
from muster.control import states
from muster.control.schedule import Node
from muster.defaults import PROTOCOL_VERSION
from muster.engines.base import Cluster
from muster.job.explain import make_spec
from muster.launch.model import to_json
from muster.launch.plan import check as check_plan
from muster.launch.plan import plan, sample_slots
from muster.server import loops, registry, tables
from muster.server.context import Context
from muster.server.database import Transaction
from muster.server.dependencies import ContextOf
from muster.server.records import active_run_count
from muster.server.submission import find_cluster
from muster.version import VERSION

router = APIRouter(tags=["workspace"])

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class PlanRequest(BaseModel):
    spec: dict[str, Any]
    python: str | None = None


class ClusterBody(BaseModel):
    name: str = Field(pattern=_NAME)
    engine: str = "local"
    options: dict[str, Any] = {}


class ModelBody(BaseModel):
    name: str = Field(pattern=_NAME)
    path: str = "outputs"
    run_id: str | None = None
    description: str | None = None
    tags: dict[str, str] = {}
    properties: dict[str, Any] = {}


class DatastoreBody(BaseModel):
    name: str = Field(pattern=_NAME)
    kind: str
    options: dict[str, Any] = {}


class Shutdown(BaseModel):
    force: bool = False


@router.get("/health")
async def health(context: ContextOf) -> dict[str, Any]:
    """Whether the server is well, and what it is."""
    active = await context.database.read(active_run_count)
    return {
        "version": VERSION,
        "protocol": PROTOCOL_VERSION,
        "workspace": context.workspace_id,
        "pid": os.getpid(),
        "active_runs": active,
        "agents": sorted(context.hub.contacts),
    }


@router.post("/plan")
async def make_plan(body: PlanRequest, context: ContextOf) -> dict[str, Any]:
    """The plan of a job on this workspace's nodes, without running it."""
    spec = make_spec(body.spec)

    def load(connection: Connection) -> list[Node]:
        return loops.offered(context, find_cluster(connection, spec.compute))

    nodes = await context.database.read(load)
    check_plan(spec)
    slots = sample_slots(spec, cpus=nodes[0].cpus, gpus=nodes[0].gpus)
    return to_json(plan(spec, slots, run_id="RUN", attempt=1, python=body.python or "python"))


@router.get("/clusters")
async def list_clusters(context: ContextOf) -> list[dict[str, Any]]:
    """Compute targets with their nodes."""
    return await context.database.read(
        lambda c: [_cluster(context, c, row) for row in c.execute(select(tables.clusters).order_by("name")).all()]
    )


@router.post("/clusters", status_code=201)
async def create_cluster(body: ClusterBody, context: ContextOf) -> dict[str, Any]:
    """Create a compute target."""
    if body.engine not in context.engines:
        raise errors.JobError(f"there is no engine {body.engine!r}", f"Engines: {', '.join(sorted(context.engines))}.")
    notices = context.engines[body.engine].check(Cluster(body.name, body.engine, body.options))

    def work(transaction: Transaction) -> None:
        if transaction.execute(select(tables.clusters).where(tables.clusters.c.name == body.name)).first():
            raise errors.Conflict(
                f"there is a cluster {body.name!r} already", "Choose another name, or delete it first."
            )
        transaction.execute(insert(tables.clusters).values(**body.model_dump(), created_at=time.time()))

    await context.database.write(work)
    return {**(await show_cluster(body.name, context)), "notices": notices}


@router.get("/clusters/{name}")
async def show_cluster(name: str, context: ContextOf) -> dict[str, Any]:
    """One compute target."""

    def load(connection: Connection) -> dict[str, Any]:
        row = connection.execute(select(tables.clusters).where(tables.clusters.c.name == name)).first()
        if row is None:
            known = [item.name for item in connection.execute(select(tables.clusters.c.name).order_by("name"))]
            raise errors.NotFound(f"there is no cluster {name!r}", f"Known here: {', '.join(known)}.")
        return _cluster(context, connection, row)

    return await context.database.read(load)


@router.delete("/clusters/{name}", status_code=204)
async def delete_cluster(name: str, context: ContextOf) -> Response:
    """Delete a compute target that no run uses."""
    if name == "local":
        raise errors.Conflict("the cluster `local` is this machine and stays")
    await show_cluster(name, context)

    def work(transaction: Transaction) -> None:
        waiting = (*states.ACTIVE, states.QUEUED, states.NOT_STARTED)
        runs = transaction.execute(
            select(tables.runs.c.id).where(tables.runs.c.compute == name, tables.runs.c.status.in_(waiting))
        ).all()
        if runs:
            raise errors.Conflict(f"{len(runs)} runs use {name}, such as {runs[0].id}", "Cancel them first.")
        transaction.execute(delete(tables.clusters).where(tables.clusters.c.name == name))

    await context.database.write(work)
    return Response(status_code=204)


@router.get("/models")
async def list_models(context: ContextOf, name: str | None = None) -> list[dict[str, Any]]:
    """Registered models, newest version first."""
    return await context.database.read(lambda c: registry.list_models(c, name))


@router.post("/models", status_code=201)
async def register_model(body: ModelBody, context: ContextOf) -> dict[str, Any]:
    """Register the next version of a model."""
    return await context.database.write(lambda transaction: registry.add_model(transaction, body.model_dump()))


@router.get("/models/{name}")
async def show_model(name: str, context: ContextOf, version: int | None = None) -> dict[str, Any]:
    """A model, its newest version unless one is named."""
    return await context.database.read(lambda c: registry.find_model(c, name, version))


@router.get("/datastores")
async def list_datastores(context: ContextOf) -> list[dict[str, Any]]:
    """Named storage."""
    return await context.database.read(registry.list_datastores)


@router.post("/datastores", status_code=201)
async def create_datastore(body: DatastoreBody, context: ContextOf) -> dict[str, Any]:
    """Name a folder."""
    if body.kind != "local":
        raise errors.JobError(f"a datastore of kind {body.kind!r} cannot be used yet", "Kinds here: local.")
    return await context.database.write(lambda transaction: registry.add_datastore(transaction, body.model_dump()))


@router.post("/shutdown", status_code=202)
async def shutdown(body: Shutdown, request: Request, context: ContextOf) -> dict[str, Any]:
    """End the server when it is idle; with `force` in any case (runs go on and are taken up again)."""
    active = await context.database.read(active_run_count)
    if active and not body.force:
        raise errors.Conflict(
            f"{active} runs are active", "Wait for them, cancel them, or use --force: they go on without the server."
        )
    request.app.state.stop(leave_agents=bool(active))
    return {"stopping": True, "active_runs": active}


def _cluster(context: Context, connection: Connection, row: Any) -> dict[str, Any]:
    cluster = loops.cluster_of(row)
    nodes, placements = tables.nodes, tables.placements
    agents = {item.name: item for item in connection.execute(select(nodes).where(nodes.c.cluster == row.name))}
    busy = {
        item.node
        for item in connection.execute(
            select(placements.c.node).where(
                placements.c.cluster == row.name, placements.c.phase.in_(states.HOLDS_RESOURCES)
            )
        )
    }
    offers = {offer.name: offer for offer in context.engines[cluster.engine].nodes(cluster)}
    return {
        "name": row.name,
        "engine": row.engine,
        "options": row.options,
        "created_at": row.created_at,
        "max_nodes": len(offers),
        "nodes": [
            {
                "name": name,
                "state": "running" if name in busy else "idle" if name in context.hub.contacts else "away",
                "host": agents[name].host,
                "pid": agents[name].pid,
                "address": agents[name].address,
                "cpus": agents[name].cpus,
                "memory_bytes": agents[name].memory_bytes,
                "gpus": agents[name].gpus,
            }
            for name in sorted(agents)
        ],
    }
