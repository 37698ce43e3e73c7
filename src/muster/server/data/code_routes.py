"""Code snapshots: what is missing, its bytes, the manifest, and the whole as an archive."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from muster import errors
from muster.control.access import AGENT, Action
from muster.server.data import code
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.uploads import body_pieces
from muster.wire.code import BlobsStored, MissingBlobs, SnapshotFiles, SnapshotStored

router = APIRouter(tags=["code"])


@router.post("/snapshots/missing", dependencies=[needs(Action.SEND_CODE)])
async def missing(body: SnapshotFiles, context: ContextOf) -> MissingBlobs:
    """Which bytes of a folder the workspace does not have yet."""
    return await asyncio.to_thread(code.missing, context, body.files)


@router.post("/blobs", dependencies=[needs(Action.SEND_CODE)])
async def blobs(request: Request, context: ContextOf) -> BlobsStored:
    """Bytes by their hash: frames of a JSON line `{"sha256", "size"}` followed by the bytes."""
    return BlobsStored(await body_pieces(request, lambda pieces: code.store_blobs(context.files.snapshots, pieces)))


@router.put("/snapshots/{digest}", status_code=201, dependencies=[needs(Action.SEND_CODE)])
async def put_snapshot(digest: str, body: SnapshotFiles, context: ContextOf) -> SnapshotStored:
    """Name a set of files whose bytes are here."""
    await asyncio.to_thread(code.put, context, digest, body.files)
    return SnapshotStored(digest)


@router.get("/snapshots/{digest}/archive", dependencies=[needs(Action.READ_CODE)])
async def archive(digest: str, context: ContextOf, caller: CallerOf) -> StreamingResponse:
    """A snapshot as a tar stream; an agent may have those of its open attempts."""
    if caller.role == AGENT:
        await context.database.read(lambda c: code.admit_agent(c, caller.subject, digest))
    if not await asyncio.to_thread(context.files.snapshots.has, digest):
        raise errors.NotFound(f"there is no code snapshot {digest}")
    return StreamingResponse(context.files.snapshots.archive(digest), media_type="application/x-tar")
