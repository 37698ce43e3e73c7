"""Checkpoints, as agents publish and fetch them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response

from muster import errors
from muster.server.http import ranges
from muster.server.http.dependencies import ContextOf, NodeOf
from muster.server.http.uploads import body_pieces
from muster.server.runs import checkpoints
from muster.store.pieces import pieces_of
from muster.wire.checkpoints import CheckpointFile, Publication, Published
from muster.wire.node.requests import FileReceived

router = APIRouter(prefix="/agents/{node}/checkpoints", tags=["agents"])


@router.put("/files", status_code=201)
async def put_file(
    node: NodeOf, request: Request, context: ContextOf, run: str, attempt: int, key: str, path: str, sha256: str,
    size: int,
) -> FileReceived:  # fmt: skip
    """One file of a checkpoint that is about to be published."""
    node_rank = await context.database.read(lambda c: checkpoints.admit(c, run, attempt, node))
    location = checkpoints.location(run, attempt, node_rank, key, path)
    await body_pieces(request, lambda pieces: context.files.store.put(location, pieces, sha256=sha256))
    return FileReceived(path)


@router.post("", status_code=201)
async def publish(node: NodeOf, given: Publication, context: ContextOf) -> Published:
    """Publish a checkpoint whose files are all here: from now on an attempt may resume from it."""
    await asyncio.to_thread(checkpoints.check_whole, context, node, given)
    gone = await context.database.write(lambda t: checkpoints.publish(context, t, node, given))
    for folder in gone:
        await asyncio.to_thread(context.files.store.remove, folder)
    return Published(given.name)


@router.get("/{checkpoint}")
async def show(node: NodeOf, checkpoint: int, run: str, context: ContextOf) -> list[CheckpointFile]:
    """The files of a checkpoint of a run that is placed on the node."""
    found = await context.database.read(lambda c: checkpoints.find(c, run, node, checkpoint))
    return found.files()


@router.get("/{checkpoint}/files/{part}/{path:path}")
async def get_file(
    node: NodeOf, checkpoint: int, part: int, path: str, run: str, request: Request, context: ContextOf
) -> Response:
    """The bytes of one of its files; supports byte ranges."""
    found = await context.database.read(lambda c: checkpoints.find(c, run, node, checkpoint))
    row = next((item for item in found.parts if item.id == part), None)
    if row is None:
        raise errors.NotFound(f"the checkpoint {checkpoint} has no part {part}")
    name = checkpoints.location(row.run_id, row.attempt, row.node_rank, row.key, path)
    size, file = await asyncio.to_thread(lambda: (context.files.store.size(name), context.files.store.open(name)))

    def pieces(offset: int, length: int) -> Iterator[bytes]:
        with file:
            file.seek(offset)
            yield from pieces_of(file, length)

    return ranges.answer(request, size, pieces)
