"""What runs logged: summaries, parameters, and runs in the order of a metric."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from muster.control.access import Action
from muster.server.database.records import find_run
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import ReadRun, needs
from muster.server.http.paging import RunsPageOf
from muster.server.tracking import labels, listing, reading
from muster.wire.tracking import MetricSummary, RunParam, RunSummary, SummaryValue

router = APIRouter(tags=["metrics"])


@router.get("/summaries", dependencies=[needs(Action.READ)])
async def list_summaries(
    context: ContextOf,
    page: RunsPageOf,
    experiment: str | None = None,
    status: Annotated[list[str] | None, Query()] = None,
    run: Annotated[list[str] | None, Query()] = None,
    name: Annotated[list[str] | None, Query()] = None,
    metric: str | None = None,
    by: SummaryValue = "best",
    ascending: bool | None = None,
) -> list[RunSummary]:
    """Runs with their parameters and metrics: the newest first, or in the order of a metric."""

    def load(connection: Connection) -> list[RunSummary]:
        ids = [find_run(connection, ref).id for ref in run or ()]
        wanted = listing.Wanted(experiment, status or (), ids, metric, by, ascending, name)
        return listing.list_summaries(connection, page, wanted)

    return await context.database.read(load)


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
