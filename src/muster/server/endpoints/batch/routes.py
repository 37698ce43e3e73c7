"""Batch endpoints: create, deploy, ask, end."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Response

from muster.control.access import Action
from muster.server.context import Context
from muster.server.endpoints.batch import records, scoring
from muster.server.environments import records as environments
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.http.uploads import in_thread
from muster.server.models import inputs
from muster.server.people import audit
from muster.server.runs import submission
from muster.wire.runs import RunView, Submission
from muster.wire.serving.batch import (
    BatchEndpointChanges,
    BatchEndpointView,
    BatchRequest,
    NewBatchDeployment,
    NewBatchEndpoint,
)

router = APIRouter(prefix="/batch-endpoints", tags=["endpoints"])

_MINE = needs(Action.MANAGE_ENDPOINT, asks_owner=True)


@router.get("", dependencies=[needs(Action.READ)])
async def list_batch_endpoints(context: ContextOf, page: PageOf) -> list[BatchEndpointView]:
    """All batch endpoints by name, with their deployments."""
    return page.of(await context.database.read(records.listing), lambda item: (item.name,))


@router.post("", status_code=201, dependencies=[needs(Action.SUBMIT)])
async def create_batch_endpoint(body: NewBatchEndpoint, context: ContextOf, caller: CallerOf) -> BatchEndpointView:
    """Create a batch endpoint; it takes requests once something is deployed."""
    audit.about(f"batch endpoint {body.name}", "created")
    await context.database.write(lambda t: records.add(t, body, caller))
    return await show_batch_endpoint(body.name, context)


@router.get("/{name}", dependencies=[needs(Action.READ)])
async def show_batch_endpoint(name: str, context: ContextOf) -> BatchEndpointView:
    """One batch endpoint with its deployments."""
    return await context.database.read(lambda c: records.view(c, records.find(c, name)))


@router.patch("/{name}", dependencies=[_MINE])
async def change_batch_endpoint(
    name: str, body: BatchEndpointChanges, context: ContextOf, caller: CallerOf
) -> BatchEndpointView:
    """Change a batch endpoint's default deployment, its description and tags."""
    audit.about(f"batch endpoint {name}", "changed")
    await context.database.write(lambda t: records.change(t, records.owned(t.connection, name, caller), body))
    return await show_batch_endpoint(name, context)


@router.delete("/{name}", status_code=204, dependencies=[_MINE])
async def delete_batch_endpoint(name: str, context: ContextOf, caller: CallerOf) -> Response:
    """Forget a batch endpoint with its deployments; its runs stay."""
    audit.about(f"batch endpoint {name}", "deleted")
    await context.database.write(lambda t: records.remove(t, records.owned(t.connection, name, caller)))
    return Response(status_code=204)


@router.put("/{name}/deployments/{deployment}", dependencies=[_MINE])
async def deploy_batch(
    name: str, deployment: str, body: NewBatchDeployment, context: ContextOf, caller: CallerOf
) -> BatchEndpointView:
    """Keep a deployment, or replace it for the runs to come."""
    audit.about(f"batch endpoint {name}", f"deployed {deployment}")
    await context.database.read(lambda c: records.owned(c, name, caller))
    new = replace(body, submission=await _placed(context, body.submission))
    await context.database.write(lambda t: scoring.deploy(context, t, name, deployment, new, caller))
    return await show_batch_endpoint(name, context)


@router.delete("/{name}/deployments/{deployment}", status_code=204, dependencies=[_MINE])
async def delete_batch_deployment(name: str, deployment: str, context: ContextOf, caller: CallerOf) -> Response:
    """Forget a deployment; its runs stay."""
    audit.about(f"batch endpoint {name}", f"removed {deployment}")
    await context.database.write(
        lambda t: records.remove_deployment(t, records.owned(t.connection, name, caller), deployment)
    )
    return Response(status_code=204)


@router.post("/{name}/invoke", status_code=201, dependencies=[needs(Action.SUBMIT)])
async def invoke_batch(name: str, body: BatchRequest, context: ContextOf, caller: CallerOf) -> RunView:
    """Score data with a deployment: a run, as the person whose token it is; the same key again is the same run."""
    audit.about(f"batch endpoint {name}", "asked")
    job = await context.database.read(lambda c: scoring.job_of(c, name, body, caller))
    placed = await _placed(context, job)
    return await context.database.write(lambda t: submission.submit(context, t, placed))


async def _placed(context: Context, job: Submission) -> Submission:
    """The job with its models where nodes can read them; outside of a transaction, since it takes time."""
    await environments.look_at_images(context, [job.spec])
    wanted = inputs.unplaced(job.spec)
    return job if not wanted else replace(job, spec=await in_thread(lambda: inputs.placed(context, job.spec, wanted)))
