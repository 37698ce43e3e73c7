"""Endpoints: create, deploy, share out traffic, keys; reports of their runs, and the answers to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from muster.control.access import Action
from muster.host import clock
from muster.server.database.connection import Transaction
from muster.server.endpoints import asking, canary, collected, deploying, keys, records, table, views
from muster.server.environments import records as environments
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import LogToRun, needs
from muster.server.http.paging import PageOf
from muster.server.http.uploads import in_thread
from muster.server.hub import wait_at_most
from muster.server.models import inputs
from muster.server.people import audit
from muster.server.runs import changes
from muster.wire.serving.collected import CollectedFile
from muster.wire.serving.endpoints import (
    EndpointAnswer,
    EndpointChanges,
    EndpointKeys,
    EndpointRequest,
    EndpointView,
    NewDeployment,
    NewEndpoint,
    NewEndpointKey,
    RouteTable,
    ServingOrders,
    ServingReport,
)

router = APIRouter(tags=["endpoints"])

_MINE = needs(Action.MANAGE_ENDPOINT, asks_owner=True)
_WAIT_MOST_S = 30.0
_FOLLOWED_MOST_S = 2.0
"""How long a change waits for the front door to apply it; one that is away follows when it is back."""


@router.get("/endpoints", dependencies=[needs(Action.READ)])
async def list_endpoints(context: ContextOf, page: PageOf) -> list[EndpointView]:
    """All endpoints by name, with their deployments and what they do."""
    found = await context.database.read(lambda c: views.listing(context, c))
    return page.of(found, lambda item: (item.name,))


@router.post("/endpoints", status_code=201, dependencies=[needs(Action.SUBMIT)])
async def create_endpoint(body: NewEndpoint, context: ContextOf, caller: CallerOf) -> EndpointView:
    """Create an endpoint; it answers once something is deployed."""
    audit.about(f"endpoint {body.name}", "created")
    await context.database.write(lambda t: records.add(context, t, body, caller))
    return await show_endpoint(body.name, context)


@router.get("/endpoints/{name}", dependencies=[needs(Action.READ)])
async def show_endpoint(name: str, context: ContextOf) -> EndpointView:
    """One endpoint with its deployments and what they do."""
    return await context.database.read(lambda c: views.view(context, c, records.find(c, name)))


@router.patch("/endpoints/{name}", dependencies=[_MINE])
async def change_endpoint(name: str, body: EndpointChanges, context: ContextOf, caller: CallerOf) -> EndpointView:
    """Change where an endpoint's traffic goes, its description and tags."""
    audit.about(f"endpoint {name}", "changed")

    def work(transaction: Transaction) -> None:
        row = records.owned(transaction.connection, name, caller)
        trial = None
        if body.canary is not None:
            trial = canary.begun(context, transaction.connection, row, body.canary, body.traffic or {})
        records.change(context, transaction, row, body, trial)

    await context.database.write(work)
    await _until_followed(context, name)
    return await show_endpoint(name, context)


@router.delete("/endpoints/{name}", status_code=204, dependencies=[_MINE])
async def delete_endpoint(name: str, context: ContextOf, caller: CallerOf) -> Response:
    """End an endpoint with all of its deployments."""
    audit.about(f"endpoint {name}", "deleted")

    def work(transaction: Transaction) -> None:
        row = records.owned(transaction.connection, name, caller)
        if runs := records.remove(context, transaction, row):
            changes.cancel(context, transaction, runs, False, caller.subject)

    await context.database.write(work)
    return Response(status_code=204)


@router.put("/endpoints/{name}/deployments/{deployment}", dependencies=[_MINE])
async def deploy(name: str, deployment: str, body: NewDeployment, context: ContextOf, caller: CallerOf) -> EndpointView:
    """Deploy a model: made, or replaced by a run that takes over once it answers, without a lost request."""
    audit.about(f"endpoint {name}", f"deployed {deployment}")
    await context.database.read(lambda c: records.owned(c, name, caller))
    job = body.submission
    await environments.look_at_images(context, [job.spec])
    if wanted := inputs.unplaced(job.spec):
        job = replace(job, spec=await in_thread(lambda: inputs.placed(context, job.spec, wanted)))
    new = replace(body, submission=job)
    await context.database.write(lambda t: deploying.deploy(context, t, name, deployment, new, caller))
    return await show_endpoint(name, context)


@router.delete("/endpoints/{name}/deployments/{deployment}", status_code=204, dependencies=[_MINE])
async def delete_deployment(name: str, deployment: str, context: ContextOf, caller: CallerOf) -> Response:
    """End a deployment that has no traffic."""
    audit.about(f"endpoint {name}", f"removed {deployment}")
    await context.database.write(
        lambda t: records.remove_deployment(context, t, records.owned(t.connection, name, caller), deployment)
    )
    return Response(status_code=204)


@router.get("/endpoints/{name}/keys", dependencies=[_MINE])
async def show_keys(name: str, context: ContextOf, caller: CallerOf) -> EndpointKeys:
    """What opens an endpoint: its keys, or a token for an hour."""
    audit.about(f"endpoint {name}", "keys shown")
    row = await context.database.read(lambda c: records.owned(c, name, caller))
    return keys.shown(keys.opened(context, row), name, row.auth_mode, clock.now())


@router.post("/endpoints/{name}/invoke", dependencies=[_MINE])
async def invoke(name: str, body: EndpointRequest, context: ContextOf, caller: CallerOf) -> EndpointAnswer:
    """Ask an endpoint from where the server is: for a try, where its address is not reached otherwise."""
    audit.about(f"endpoint {name}", "asked")
    row = await context.database.read(lambda c: records.owned(c, name, caller))
    view = await show_endpoint(name, context)
    opened = keys.shown(keys.opened(context, row), name, row.auth_mode, clock.now())
    return await asyncio.to_thread(asking.ask, view, opened, body)


@router.post("/endpoints/{name}/keys", dependencies=[_MINE])
async def renew_key(name: str, body: NewEndpointKey, context: ContextOf, caller: CallerOf) -> EndpointKeys:
    """Make one of an endpoint's keys anew; where tokens open it, those handed out so far end."""
    audit.about(f"endpoint {name}", f"{body.kind} key made anew")
    found = await context.database.write(
        lambda t: records.renew_key(context, t, records.owned(t.connection, name, caller), body)
    )
    # The new key may be used at once, and the old one opens nothing any more.
    await _until_followed(context, name)
    return found


async def _until_followed(context: ContextOf, name: str) -> None:
    """Wait until an endpoint's front door has applied the last change, as long as it reports at all."""

    def look(connection: Connection) -> tuple[int, str | None]:
        doors = [run for run in records.open_runs(connection, name) if run.deployment is None]
        return records.find(connection, name).version, doors[-1].run_id if doors else None

    version, door = await context.database.read(look)
    if door is not None and context.endpoints.of(door) is not None:
        await context.endpoints.until_followed(door, version, _FOLLOWED_MOST_S)


@router.post("/runs/{ref}/serving")
async def report(run: LogToRun, body: ServingReport, context: ContextOf) -> ServingOrders:
    """What a run of an endpoint says of its replicas or its front door, and what it must know."""

    def look(connection: Connection) -> ServingOrders | None:
        mine = records.run_of(connection, run)
        if table.is_news(connection, mine, body):
            return None
        return table.orders(context, connection, mine, records.find(connection, mine.endpoint), body.attempt)

    found = await context.database.read(look)
    seen = context.endpoints.of(run)
    context.endpoints.note(run, body)
    if found is None:
        found = await context.database.write(lambda t: table.take(context, t, run, body))
    elif seen is None or seen.seen != body.seen or (seen.open and not body.open):
        context.endpoints.changed.set()
    return found


@router.post("/runs/{ref}/serving/collected", status_code=204)
async def collect(run: LogToRun, body: CollectedFile, context: ContextOf) -> Response:
    """What replicas of a deployment keep of requests and answers."""
    name = await context.database.read(lambda c: collected.name_of(c, run, body))
    await in_thread(lambda: collected.keep(context, name, body))
    return Response(status_code=204)


@router.get("/runs/{ref}/serving/routes")
async def routes(
    run: LogToRun,
    context: ContextOf,
    seen: int = -1,
    wait_s: Annotated[float, Query(ge=0, le=_WAIT_MOST_S)] = 0.0,
) -> RouteTable:
    """The table of an endpoint's front door; asked with the version that it has, it waits for another."""
    mine = await context.database.read(lambda c: records.run_of(c, run))
    with context.endpoints.watching(mine.endpoint) as changed:
        found = await context.database.read(lambda c: table.load(context, c, run))
        if found.version != seen or not wait_s or context.endpoints.is_closing:
            return found
        await wait_at_most(changed, wait_s)
    return await context.database.read(lambda c: table.load(context, c, run))
