"""The workspace itself: health, plans, models, shutdown."""

from __future__ import annotations

import os
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from muster import errors
from muster.control.scheduling.model import Node
from muster.defaults import PROTOCOL_VERSION
from muster.job.explain import make_spec
from muster.launch.plan import check as check_plan
from muster.launch.plan import plan, sample_slots
from muster.server.database.records import active_run_count
from muster.server.http.dependencies import ContextOf
from muster.server.models import registry
from muster.server.nodes import allocations, clusters
from muster.server.runs.submission import find_cluster
from muster.version import VERSION
from muster.wire.codec import to_json

router = APIRouter(tags=["workspace"])

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class PlanRequest(BaseModel):
    spec: dict[str, Any]
    python: str | None = None


class ModelBody(BaseModel):
    name: str = Field(pattern=_NAME)
    path: str = "outputs"
    run_id: str | None = None
    description: str | None = None
    tags: dict[str, str] = {}
    properties: dict[str, Any] = {}


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

    def load(connection: Connection) -> tuple[list[Node], str | None]:
        cluster = clusters.cluster_of(find_cluster(connection, spec.compute))
        return clusters.offered(context, cluster), allocations.preview(context, cluster, spec)

    nodes, script = await context.database.read(load)
    check_plan(spec)
    slots = sample_slots(spec, cpus=nodes[0].cpus, gpus=nodes[0].gpus) if nodes else sample_slots(spec)
    made = to_json(plan(spec, slots, run_id="RUN", attempt=1, python=body.python or "python"))
    return {**made, "script": script} if script is not None else made


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
