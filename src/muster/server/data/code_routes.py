"""Code snapshots: what is missing, its bytes, the manifest, and the whole as an archive."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import insert, select, update

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.http.dependencies import ContextOf
from muster.server.http.uploads import body_pieces
from muster.store.snapshots import Snapshots
from muster.wire.code import Manifest, digest_of

router = APIRouter(tags=["code"])

_HEAD_LIMIT = 4096


class Files(BaseModel):
    """A manifest: path to [sha256, size, mode]."""

    files: dict[str, tuple[str, int, int]]

    def manifest(self) -> Manifest:
        return self.files


@router.post("/snapshots/missing")
async def missing(body: Files, context: ContextOf) -> dict[str, Any]:
    """Which bytes of a folder the workspace does not have yet."""
    files = body.manifest()
    digest = digest_of(files)
    if await asyncio.to_thread(context.snapshots.has, digest):
        # Its age counts from its last use.
        used = update(tables.snapshots).where(tables.snapshots.c.digest == digest).values(used_at=time.time())
        await context.database.write(lambda transaction: transaction.execute(used))
        return {"digest": digest, "missing": [], "known": True}
    return {"digest": digest, "missing": await asyncio.to_thread(context.snapshots.missing, files), "known": False}


@router.post("/blobs")
async def blobs(request: Request, context: ContextOf) -> dict[str, int]:
    """Bytes by their hash: frames of a JSON line `{"sha256", "size"}` followed by the bytes."""
    count = await body_pieces(request, lambda pieces: _store_blobs(context.snapshots, pieces))
    return {"stored": count}


@router.put("/snapshots/{digest}", status_code=201)
async def put_snapshot(digest: str, body: Files, context: ContextOf) -> dict[str, str]:
    """Name a set of files whose bytes are here."""
    files = body.manifest()
    await asyncio.to_thread(_name, context, digest, files)

    def work(transaction: Transaction) -> None:
        if transaction.execute(select(tables.snapshots).where(tables.snapshots.c.digest == digest)).first() is None:
            size = sum(int(entry[1]) for entry in files.values())
            row = {"digest": digest, "num_files": len(files), "size": size, "created_at": time.time()}
            transaction.execute(insert(tables.snapshots).values(**row))

    await context.database.write(work)
    return {"digest": digest}


@router.get("/snapshots/{digest}/archive")
async def archive(digest: str, context: ContextOf) -> StreamingResponse:
    """A snapshot as a tar stream."""
    if not await asyncio.to_thread(context.snapshots.has, digest):
        raise errors.NotFound(f"there is no code snapshot {digest}")
    return StreamingResponse(context.snapshots.archive(digest), media_type="application/x-tar")


def _name(context: Context, digest: str, files: Manifest) -> None:
    with context.code_lock:
        context.snapshots.put(digest, files)


def _store_blobs(snapshots: Snapshots, pieces: Iterator[bytes]) -> int:
    """Cut a stream of frames into blobs without holding one whole."""
    buffer = b""
    count = 0

    def take(size: int) -> Iterator[bytes]:
        nonlocal buffer
        left = size
        while left:
            if not buffer:
                buffer = next(pieces, b"")
                if not buffer:
                    raise errors.JobError("the upload ended in the middle of a file", "Send it again.")
            piece, buffer = buffer[:left], buffer[left:]
            left -= len(piece)
            yield piece

    while True:
        while b"\n" not in buffer:
            more = next(pieces, b"")
            if not more:
                if buffer:
                    raise errors.JobError("the upload ends with half a frame", "Send it again.")
                return count
            buffer += more
            if len(buffer) > _HEAD_LIMIT and b"\n" not in buffer[:_HEAD_LIMIT]:
                raise errors.JobError("the upload is not made of frames", 'Send {"sha256", "size"} lines with bytes.')
        line, buffer = buffer.split(b"\n", 1)
        try:
            head = json.loads(line)
            sha256, size = str(head["sha256"]), int(head["size"])
        except (ValueError, KeyError, TypeError):
            raise errors.JobError(f"{line[:80]!r} is no head of a blob", 'Send {"sha256", "size"}.') from None
        snapshots.put_blob(sha256, take(size))
        count += 1
