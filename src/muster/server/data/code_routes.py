"""Code snapshots: what is missing, its bytes, the manifest, and the whole as an archive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from muster import errors
from muster.control.access import AGENT, Action
from muster.server.data import code
from muster.server.http import ranges
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.http.uploads import body_pieces
from muster.store.pieces import pieces_of
from muster.wire.code import BlobsStored, CodeFile, MissingBlobs, SnapshotFiles, SnapshotStored

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


@router.get("/snapshots/{digest}", dependencies=[needs(Action.READ_CODE)])
async def show(digest: str, context: ContextOf, caller: CallerOf) -> SnapshotFiles:
    """The files of a snapshot: hash, size and mode of each."""
    await _admit(digest, context, caller)
    return SnapshotFiles(await asyncio.to_thread(context.files.snapshots.files, digest))


@router.get("/snapshots/{digest}/files", dependencies=[needs(Action.READ_CODE)])
async def list_files(digest: str, context: ContextOf, caller: CallerOf, page: PageOf) -> list[CodeFile]:
    """The files of a snapshot by name."""
    await _admit(digest, context, caller)
    found = await asyncio.to_thread(context.files.snapshots.files, digest)
    files = [CodeFile(path, sha256, size) for path, (sha256, size, _) in found.items()]
    return page.of(files, lambda file: (file.path,))


@router.get("/snapshots/{digest}/files/{path:path}", dependencies=[needs(Action.READ_CODE)])
async def read_file(digest: str, path: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    """One file of a snapshot; a byte range may be asked for."""
    await _admit(digest, context, caller)
    size, file = await asyncio.to_thread(context.files.snapshots.open, digest, path)

    def pieces(offset: int, length: int) -> Iterator[bytes]:
        with file:
            file.seek(offset)
            yield from pieces_of(file, length)

    return ranges.answer(request, size, pieces)


@router.get("/snapshots/{digest}/archive", dependencies=[needs(Action.READ_CODE)])
async def archive(digest: str, context: ContextOf, caller: CallerOf) -> StreamingResponse:
    """A snapshot as a tar stream; an agent may have those of its open attempts."""
    await _admit(digest, context, caller)
    return StreamingResponse(context.files.snapshots.archive(digest), media_type="application/x-tar")


async def _admit(digest: str, context: ContextOf, caller: CallerOf) -> None:
    if caller.role == AGENT:
        await context.database.read(lambda c: code.admit_agent(c, caller.subject, digest))
    if not await asyncio.to_thread(context.files.snapshots.has, digest):
        raise errors.NotFound(f"there is no code snapshot {digest}")
