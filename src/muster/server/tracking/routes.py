"""What runs logged: summaries, parameters, and the table of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import Connection

from muster.control.access import Action
from muster.server.database.records import find_run
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import ReadRun, needs
from muster.server.http.paging import RunsPageOf
from muster.server.tracking import labels, listing, reading, table
from muster.server.tracking.answers import Answer
from muster.server.tracking.filters import TEXT_MOST, RunFilter
from muster.wire.codec import to_json
from muster.wire.tracking import Facets, MetricSummary, RunColumn, RunParam, RunSummary, SummaryValue

router = APIRouter(tags=["metrics"])
_MOMENT_S = 1.0
_FACETS = "/facets"
"""Their key in the cache; other keys are queries, which do not begin with `/`."""


async def _filter(
    experiment: str | None = None,
    status: Annotated[list[str] | None, Query()] = None,
    since: float | None = None,
    tag: Annotated[list[str] | None, Query()] = None,
    person: str | None = None,
    cluster: str | None = None,
    text: Annotated[str | None, Query(max_length=TEXT_MOST)] = None,
) -> RunFilter:
    return RunFilter(experiment, status or (), since, tag or (), person, cluster, text)


async def _wanted(
    runs: Annotated[RunFilter, Depends(_filter)],
    run: Annotated[list[str] | None, Query()] = None,
    name: Annotated[list[str] | None, Query()] = None,
    metric: str | None = None,
    by: SummaryValue = "best",
    ascending: bool | None = None,
    param: str | None = None,
    sort: RunColumn | None = None,
) -> listing.Wanted:
    return listing.Wanted(runs, run or (), metric, by, ascending, name, param, sort)


@router.get("/summaries", dependencies=[needs(Action.READ)], response_model=list[RunSummary])
async def list_summaries(
    request: Request, context: ContextOf, page: RunsPageOf, wanted: Annotated[listing.Wanted, Depends(_wanted)]
) -> Response:
    """Runs with parameters and metrics: the newest first, or in the order of a column, a parameter or a metric.

    The `ETag` stays the same as long as nothing changes: with `If-None-Match` that costs next to nothing.
    """
    tag, address = context.answers.tag(context.database.writer.commits), request.url.query
    seen = request.headers.get("if-none-match")
    # Polling clients, of which there are many, may see a change a second later.
    found = context.answers.known(address, tag, _MOMENT_S if seen else 0.0)
    if seen is not None and seen in (tag, found.tag if found is not None else None):
        return Response(status_code=304, headers={"ETag": seen})

    def load(connection: Connection) -> Answer:
        chosen = replace(wanted, runs=[find_run(connection, ref).id for ref in wanted.runs])
        return table.answer(context, connection, page, chosen, tag)

    if found is None:
        found = await context.database.read(load)
        context.answers.keep(address, found)
    headers = {**found.headers, "ETag": found.tag, "Cache-Control": "no-cache"}
    return Response(found.body, headers=headers, media_type="application/json")


@router.get("/facets", dependencies=[needs(Action.READ)], response_model=Facets)
async def facets(context: ContextOf) -> Response:
    """What runs can be filtered by: states, experiments, people and clusters, with how many runs there are of each."""
    tag = context.answers.tag(context.database.writer.commits)
    found = context.answers.known(_FACETS, tag)
    if found is None:
        loaded = await context.database.read(listing.load_facets)
        found = Answer(tag, json.dumps(to_json(loaded), separators=(",", ":")).encode(), {})
        context.answers.keep(_FACETS, found)
    return Response(found.body, media_type="application/json")


@router.get("/runs/{ref}/metrics/summaries")
async def metric_summaries(run: ReadRun, context: ContextOf, name: str | None = None) -> list[MetricSummary]:
    """The last, best, least and greatest value of each series of a run, without its points."""
    return await context.database.read(lambda c: reading.load_summaries(c, run, name))


@router.get("/runs/{ref}/params")
async def params(run: ReadRun, context: ContextOf) -> list[RunParam]:
    """The parameters that a run logged."""

    def load(connection: Connection) -> list[RunParam]:
        return [RunParam(*item) for item in labels.load_params(connection, [run]).get(run, {}).items()]

    return await context.database.read(load)
