"""Runs: submit, list, show, follow, cancel, remove; their metrics and files."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import Connection, delete, insert, select, update

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event, find_run, move_run
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.ranges import parse_range
from muster.server.http.uploads import body_pieces
from muster.server.people.access import Caller
from muster.server.runs import attempts, ingest, retries
from muster.server.runs.streaming import Cursor, follow, metric_json
from muster.server.runs.submission import Submission, accept
from muster.server.runs.views import RunFile, checkpoint_files, run_files, run_views
from muster.store.backend import pieces_of, safe_name
from muster.wire import states

router = APIRouter(prefix="/runs", tags=["runs"])


class Changes(BaseModel):
    """The body of `PATCH runs/RUN`; tags are merged, a null tag is removed."""

    tags: dict[str, str | None] | None = None
    display_name: str | None = None
    description: str | None = None


class Cancel(BaseModel):
    force: bool = False


class Points(BaseModel):
    points: list[dict[str, Any]]


@router.post("", status_code=201)
async def submit(submission: Submission, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Submit a job; the same key again is the same run."""

    def work(transaction: Transaction) -> dict[str, Any]:
        run_id = accept(context, transaction, submission)
        return run_views(context, transaction.connection, [find_run(transaction, run_id)])[0]

    return await context.database.write(work)


@router.get("")
async def list_runs(
    context: ContextOf,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    experiment: str | None = None,
    status: Annotated[list[str] | None, Query()] = None,
) -> list[dict[str, Any]]:
    """Runs, newest first."""

    def load(connection: Connection) -> list[dict[str, Any]]:
        query = select(tables.runs).order_by(tables.runs.c.seq.desc()).limit(limit)
        if experiment:
            query = query.where(tables.runs.c.experiment == experiment)
        if status:
            query = query.where(tables.runs.c.status.in_(status))
        return run_views(context, connection, connection.execute(query).all())

    return await context.database.read(load)


@router.get("/{ref}")
async def show(ref: str, context: ContextOf) -> dict[str, Any]:
    """One run, whole."""
    return await _view(context, ref)


@router.patch("/{ref}")
async def change(ref: str, changes: Changes, context: ContextOf) -> dict[str, Any]:
    """Change a run's tags, display name or description."""

    def work(transaction: Transaction) -> str:
        row = find_run(transaction, ref)
        values: dict[str, Any] = {}
        if changes.tags is not None:
            merged = {**row.tags, **changes.tags}
            values["tags"] = {key: value for key, value in merged.items() if value is not None}
        if changes.display_name is not None:
            values["display_name"] = changes.display_name
        if changes.description is not None:
            values["description"] = changes.description
        if values:
            transaction.execute(update(tables.runs).where(tables.runs.c.id == row.id).values(**values))
        return str(row.id)

    return await _view(context, await context.database.write(work))


@router.post("/{ref}/cancel")
async def cancel(ref: str, body: Cancel, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Cancel a run: its ranks get SIGTERM and a grace period; with `force` they are killed."""
    run_id = await context.database.write(lambda transaction: cancel_run(context, transaction, ref, body.force, caller))
    return await _view(context, run_id)


@router.post("/{ref}/retry")
async def retry(ref: str, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """One more attempt of a run that has ended; it resumes from the last checkpoint."""
    run_id = await context.database.write(lambda t: retries.by_hand(context, t, ref, caller.subject))
    return await _view(context, run_id)


@router.delete("/{ref}", status_code=204)
async def remove(ref: str, context: ContextOf) -> Response:
    """Remove a run that has ended, with its files."""

    def work(transaction: Transaction) -> str:
        row = find_run(transaction, ref)
        if row.status not in states.TERMINAL:
            raise errors.Conflict(f"the run {row.id} is {row.status}", f"Cancel it first: `muster cancel {row.id}`.")
        model = transaction.execute(select(tables.models).where(tables.models.c.run_id == row.id)).first()
        if model is not None:
            raise errors.Conflict(
                f"the model {model.name}:{model.version} lies in the run {row.id}", "It stays with the model."
            )
        for table in (
            tables.attempts,
            tables.placements,
            tables.ranks,
            tables.events,
            tables.metrics,
            tables.checkpoints,
        ):
            transaction.execute(delete(table).where(table.c.run_id == row.id))
        transaction.execute(delete(tables.streams).where(tables.streams.c.run_id == row.id))
        transaction.execute(delete(tables.output_files).where(tables.output_files.c.run_id == row.id))
        transaction.execute(delete(tables.files).where(tables.files.c.run_id == row.id))
        transaction.execute(delete(tables.runs).where(tables.runs.c.id == row.id))
        return str(row.id)

    run_id = await context.database.write(work)
    await asyncio.to_thread(context.streams.remove, run_id)
    await asyncio.to_thread(context.store.remove, f"runs/{run_id}")
    return Response(status_code=204)


@router.get("/{ref}/stream")
async def stream(
    ref: str,
    request: Request,
    context: ContextOf,
    cursor: str | None = None,
    follow_run: Annotated[bool, Query(alias="follow")] = True,
    logs: bool = True,
    metrics: bool = True,
) -> StreamingResponse:
    """Server-sent events of a run; send the last `id:` back as `cursor` (or Last-Event-ID) to go on."""
    row = await context.database.read(lambda c: find_run(c, ref))
    start = Cursor.decode(cursor or request.headers.get("last-event-id"))
    events = follow(context, row.id, start, follow=follow_run, logs=logs, metrics=metrics)
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@router.get("/{ref}/metrics")
async def metrics(ref: str, context: ContextOf, name: str | None = None) -> list[dict[str, Any]]:
    """Every metric point of a run, in the order of arrival."""

    def load(connection: Connection) -> list[dict[str, Any]]:
        row = find_run(connection, ref)
        query = select(tables.metrics).where(tables.metrics.c.run_id == row.id).order_by(tables.metrics.c.id)
        if name is not None:
            query = query.where(tables.metrics.c.name == name)
        return [metric_json(item) for item in connection.execute(query)]

    return await context.database.read(load)


@router.post("/{ref}/metrics", status_code=204)
async def log_metrics(ref: str, body: Points, context: ContextOf) -> Response:
    """Log metric points from outside a rank."""

    def work(transaction: Transaction) -> None:
        row = find_run(transaction, ref)
        points = [ingest.point(row.id, row.attempt, "client", item) for item in body.points if item.get("name")]
        if points:
            transaction.execute(insert(tables.metrics), points)
        transaction.after_commit.append(lambda: context.hub.changed(runs=[row.id]))

    await context.database.write(work)
    return Response(status_code=204)


@router.get("/{ref}/files")
async def files(ref: str, context: ContextOf, checkpoints: bool = False) -> list[dict[str, Any]]:
    """The run's files by name; those of its checkpoints where they are asked for."""
    found = await _files(context, ref, checkpoints)
    return [{"path": file.path, "size": file.size, "sha256": file.sha256, "attempt": file.attempt} for file in found]


@router.get("/{ref}/files/{path:path}")
async def download(ref: str, path: str, request: Request, context: ContextOf) -> StreamingResponse:
    """One file of a run; a byte range may be asked for."""
    found = {file.path: file for file in await _files(context, ref, path.startswith("checkpoints/"))}
    file = found.get(path)
    if file is None:
        raise errors.NotFound(f"the run has no file {path!r}", "`muster show RUN` lists its files.")
    size = file.size
    first, last = parse_range(request.headers.get("range"), size)

    def pieces() -> Iterator[bytes]:
        with context.open(file.location) as source:
            source.seek(first)
            yield from pieces_of(source, last - first + 1)

    headers = {"Content-Length": str(max(0, last - first + 1)), "Accept-Ranges": "bytes"}
    status = 200
    if "range" in request.headers:
        status = 206
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return StreamingResponse(pieces(), status, headers, media_type="application/octet-stream")


@router.put("/{ref}/files/{path:path}", status_code=201)
async def upload(ref: str, path: str, request: Request, context: ContextOf) -> dict[str, Any]:
    """Add a file to a run from outside."""
    row = await context.database.read(lambda c: find_run(c, ref))
    digest = hashlib.sha256()
    location = f"runs/{row.id}/attempts/0/{safe_name(path)}"
    size = await body_pieces(request, lambda pieces: context.store.put(location, _hashed(pieces, digest)))

    def work(transaction: Transaction) -> None:
        where = (tables.files.c.run_id == row.id, tables.files.c.attempt == 0, tables.files.c.path == path)
        transaction.execute(delete(tables.files).where(*where))
        transaction.execute(
            insert(tables.files).values(
                run_id=row.id, attempt=0, path=path, node_rank=0, size=size, sha256=digest.hexdigest()
            )
        )

    await context.database.write(work)
    return {"path": path, "size": size, "sha256": digest.hexdigest()}


def cancel_run(context: Context, transaction: Transaction, ref: str, force: bool, caller: Caller) -> str:
    row = find_run(transaction, ref)
    if row.status in states.TERMINAL:
        return str(row.id)
    values = {"cancel": "kill" if force or row.cancel == "kill" else "cancel", "cancel_by": caller.subject}
    transaction.execute(update(tables.runs).where(tables.runs.c.id == row.id).values(**values))
    text = f"{'killed' if force else 'cancel requested'} by {caller.subject}"
    add_event(transaction, row.id, "note", {"level": "warning", "text": text})
    if row.status == states.QUEUED:
        verdict: dict[str, Any] = {
            "code": "cancelled",
            "message": f"cancelled by {caller.subject} before "
            + (f"attempt {row.attempt + 1} started" if row.attempt else "it started"),
            "rank": None,
            "node": None,
            "evidence": {},
            "action": "",
            "next": "",
            "lines": [],
        }
        move_run(transaction, row.id, states.CANCELED, ended_at=time.time(), verdict=verdict)
        transaction.after_commit.append(lambda: context.hub.changed(runs=[row.id], queue=True))
    else:
        attempts.advance(context, transaction, row.id)
    return str(row.id)


async def _view(context: Context, ref: str) -> dict[str, Any]:
    views = await context.database.read(lambda c: run_views(context, c, [find_run(c, ref)]))
    return views[0]


async def _files(context: Context, ref: str, with_checkpoints: bool) -> list[RunFile]:
    def read(connection: Connection) -> list[RunFile]:
        row = find_run(connection, ref)
        return [*run_files(context, connection, row), *(checkpoint_files(connection, row) if with_checkpoints else ())]

    return await context.database.read(read)


def _hashed(pieces: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece
