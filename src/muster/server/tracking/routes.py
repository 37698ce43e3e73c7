"""What runs logged: summaries, parameters, and runs in the order of a metric."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from muster.server.database.records import find_run
from muster.server.http.dependencies import ContextOf
from muster.server.http.paging import RunsPageOf
from muster.server.tracking import labels, listing, reading
from muster.wire.tracking import MetricSummary, RunParam, RunSummary, SummaryValue

router = APIRouter(tags=["metrics"])


@router.get("/summaries")
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
async def metric_summaries(ref: str, context: ContextOf, name: str | None = None) -> list[MetricSummary]:
    """The last, best, least and greatest value of each series of a run, without its points."""
    return await context.database.read(lambda c: reading.load_summaries(c, ref, name))


@router.get("/runs/{ref}/params")
async def params(ref: str, context: ContextOf) -> list[RunParam]:
    """The parameters that a run logged."""

    def load(connection: Connection) -> list[RunParam]:
        run_id = find_run(connection, ref).id
        return [RunParam(*item) for item in labels.load_params(connection, [run_id]).get(run_id, {}).items()]

    return await context.database.read(load)
