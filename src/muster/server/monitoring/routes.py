"""The address `/metrics`, which Prometheus reads."""

from __future__ import annotations

from fastapi import APIRouter, Response

from muster.control.access import Action
from muster.host import clock
from muster.server.endpoints import views
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import needs
from muster.server.monitoring import facts
from muster.server.monitoring.exposition import CONTENT_TYPE, exposition

router = APIRouter(include_in_schema=False)


@router.get("/metrics", dependencies=[needs(Action.READ)])
async def metrics(context: ContextOf) -> Response:
    """Runs, queue, nodes, active runs and the server itself, as figures."""
    found = await context.database.read(facts.load)
    trouble = context.disk.full or context.missing_runs
    endpoints = await context.database.read(lambda c: views.listing(context, c))
    commits, agents = context.database.writer.commits, len(context.hub.contacts)
    return Response(exposition(found, clock.now(), commits, agents, trouble, endpoints), media_type=CONTENT_TYPE)
