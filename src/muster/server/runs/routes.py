"""Runs: submit, list, show, follow, cancel, remove; their metrics and files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from muster import errors
from muster.control.access import Action, Caller
from muster.host.points import pack
from muster.server.context import Context
from muster.server.environments import records
from muster.server.http import ranges
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import (
    CancelRun,
    ChangeRun,
    DeleteRun,
    LogToRun,
    ReadRun,
    RetryRun,
    admitted_runs,
    needs,
)
from muster.server.http.paging import PageOf, RunsPageOf
from muster.server.http.uploads import body_pieces, in_thread
from muster.server.logs.cursor import Cursor
from muster.server.logs.query import LogQueryOf
from muster.server.models import inputs
from muster.server.runs import changes, retries, submission, views
from muster.server.runs.streaming import follow, open_stream
from muster.server.tracking.filters import TEXT_MOST, RunFilter
from muster.server.tracking.reading import load_points, load_series
from muster.store.pieces import pieces_of
from muster.wire.data.access import HashedFile
from muster.wire.runs import (
    Cancel,
    CancelledRun,
    CancelRuns,
    Changes,
    FileView,
    MetricPoint,
    MetricReports,
    MetricSeries,
    RunView,
    Submission,
    SubmitRuns,
)

router = APIRouter(prefix="/runs", tags=["runs"])


@router.post("", status_code=201, dependencies=[needs(Action.SUBMIT)])
async def submit(body: Submission, context: ContextOf, caller: CallerOf) -> RunView:
    """Submit a job, as the person whose token it is; the same key again is the same run."""
    mine = await _prepared(context, caller, [body])
    return await context.database.write(lambda transaction: submission.submit(context, transaction, mine[0]))


@router.post("/many", status_code=201, dependencies=[needs(Action.SUBMIT)])
async def submit_many(body: SubmitRuns, context: ContextOf, caller: CallerOf) -> list[RunView]:
    """Submit many jobs in one write: all of them, or none where one is refused."""
    mine = await _prepared(context, caller, body.runs)
    return await context.database.write(lambda transaction: submission.submit_many(context, transaction, mine))


async def _prepared(context: Context, caller: Caller, given: Sequence[Submission]) -> list[Submission]:
    """Submissions with the slow work done, outside the transaction: an unreachable registry takes seconds."""
    await records.look_at_images(context, [item.spec for item in given])
    made = []
    for item in given:
        spec = item.spec
        if wanted := inputs.unplaced(spec):
            spec = await in_thread(partial(inputs.placed, context, spec, wanted))
        made.append(replace(item, spec=spec, submitted_by=caller.subject))
    return made


@router.get("", dependencies=[needs(Action.READ)])
async def list_runs(
    context: ContextOf,
    page: RunsPageOf,
    experiment: str | None = None,
    status: Annotated[list[str] | None, Query()] = None,
    since: float | None = None,
    tag: Annotated[list[str] | None, Query()] = None,
    person: str | None = None,
    cluster: str | None = None,
    text: Annotated[str | None, Query(max_length=TEXT_MOST)] = None,
    checks: bool = True,
) -> list[RunView]:
    """Runs, newest first; `tag` is NAME=VALUE or NAME, `since` a time in seconds of the epoch.

    `text` holds words that each must stand in the run's id, names, experiment, person, description or tags; without
    `checks`, runs of `muster cluster check` are left out.
    """
    wanted = RunFilter(experiment, status or (), since, tag or (), person, cluster, text, checks)
    return await context.database.read(lambda c: views.list_runs(context, c, page, wanted))


@router.get("/{ref}")
async def show(run: ReadRun, context: ContextOf) -> RunView:
    """One run, whole."""
    return await context.database.read(lambda c: views.run_view(context, c, run))


@router.patch("/{ref}")
async def change(run: ChangeRun, body: Changes, context: ContextOf) -> RunView:
    """Change a run's tags, display name or description."""
    await context.database.write(lambda transaction: changes.change(transaction, run, body))
    return await show(run, context)


@router.post("/{ref}/cancel")
async def cancel(run: CancelRun, body: Cancel, context: ContextOf, caller: CallerOf) -> RunView:
    """Cancel a run: its ranks get SIGTERM and a grace period; with `force` they are killed."""
    await context.database.write(lambda t: changes.cancel(context, t, [run], body.force, caller.subject))
    return await show(run, context)


@router.post("/cancel", dependencies=[needs(Action.CANCEL_RUN, asks_owner=True)])
async def cancel_runs(body: CancelRuns, context: ContextOf, caller: CallerOf) -> list[CancelledRun]:
    """Cancel many runs in one write."""
    runs = await admitted_runs(context, caller, Action.CANCEL_RUN, body.runs)
    return await context.database.write(lambda t: changes.cancel(context, t, runs, body.force, caller.subject))


@router.post("/{ref}/retry")
async def retry(run: RetryRun, context: ContextOf, caller: CallerOf) -> RunView:
    """One more attempt of a run that has ended; it resumes from the last checkpoint."""
    await context.database.write(lambda t: retries.by_hand(context, t, run, caller.subject))
    return await show(run, context)


@router.delete("/{ref}", status_code=204)
async def remove(run: DeleteRun, context: ContextOf) -> Response:
    """Remove a run that has ended, with its files."""
    await context.database.write(lambda transaction: changes.forget(transaction, run))
    await asyncio.to_thread(changes.remove_bytes, context, run)
    return Response(status_code=204)


@router.get("/{ref}/stream")
async def stream(
    run: ReadRun,
    request: Request,
    context: ContextOf,
    query: LogQueryOf,
    cursor: str | None = None,
    follow_run: Annotated[bool, Query(alias="follow")] = True,
    logs: bool = True,
    metrics: bool = True,
) -> StreamingResponse:
    """Server-sent events of a run; send the last `id:` back as `cursor` (or Last-Event-ID) to go on."""
    start = Cursor.decode(cursor or request.headers.get("last-event-id"))
    follower = await open_stream(context, run, start, query)
    events = follow(follower, follow=follow_run, logs=logs, metrics=metrics)
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@router.get("/{ref}/metrics")
async def metrics(run: ReadRun, context: ContextOf, page: PageOf, name: str | None = None) -> list[MetricPoint]:
    """Every metric point of a run, in the order of arrival."""
    return await context.database.read(lambda c: load_points(c, run, name, page))


@router.get("/{ref}/metrics/series", response_model=list[MetricSeries])
async def metric_series(
    run: ReadRun,
    context: ContextOf,
    name: str | None = None,
    points: Annotated[int, Query(ge=10, le=100_000)] = 1000,
    full: bool = False,
    packed: bool = False,
) -> Response:
    """Metrics by name, source and attempt, each thinned out to so many points; with `full` every point.

    With `packed` as bytes, which Muster's own client reads ten times faster than JSON.
    """

    def load(connection: Connection) -> bytes:
        found = load_series(connection, run, name, None if full else points)
        if packed:
            return pack(found)
        # Checking each of 100,000 points once more would take longer than reading them.
        return json.dumps([vars(series) for series in found]).encode()

    kind = "application/octet-stream" if packed else "application/json"
    return Response(await context.database.read(load), media_type=kind)


@router.post("/{ref}/metrics", status_code=204)
async def log_metrics(run: LogToRun, body: MetricReports, context: ContextOf) -> Response:
    """Log metric points that come from no rank."""
    await context.database.write(lambda t: changes.log_metrics(context, t, run, body.points))
    return Response(status_code=204)


@router.get("/{ref}/files")
async def files(run: ReadRun, context: ContextOf, page: PageOf, checkpoints: bool = False) -> list[FileView]:
    """The run's files by name, on request with those of its checkpoints."""
    found = await context.database.read(lambda c: views.files_of(context, c, run, checkpoints))
    chosen = page.of(found, lambda file: (file.path, file.attempt))
    return [FileView(file.path, file.size, file.sha256, file.attempt) for file in chosen]


@router.get("/{ref}/files/{path:path}")
async def download(run: ReadRun, path: str, request: Request, context: ContextOf) -> Response:
    """One file of a run; supports byte ranges."""
    found = await context.database.read(lambda c: views.files_of(context, c, run, path.startswith("checkpoints/")))
    file = next((file for file in found if file.path == path), None)
    if file is None:
        raise errors.NotFound(f"the run has no file {path!r}", "`muster show RUN` lists its files.")

    def pieces(offset: int, length: int) -> Iterator[bytes]:
        with context.files.open(file.location) as source:
            source.seek(offset)
            yield from pieces_of(source, length)

    # A log grows: a range beyond its end is empty for now.
    return ranges.answer(request, file.size, pieces, is_growing=True)


@router.put("/{ref}/files/{path:path}", status_code=201)
async def upload(run: LogToRun, path: str, request: Request, context: ContextOf) -> HashedFile:
    """Add a file to a run from elsewhere."""
    stored = await body_pieces(request, lambda pieces: changes.store_file(context, run, path, pieces))
    await context.database.write(lambda transaction: changes.add_file(transaction, run, stored))
    return stored
