"""Code snapshots: which bytes are missing, their arrival, and the record of each snapshot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from sqlalchemy import Connection, insert, select, update

from muster import errors
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.environments.records import build_snapshot
from muster.store.snapshots import Snapshots
from muster.wire import states
from muster.wire.code import BlobHead, Manifest, MissingBlobs, digest_of
from muster.wire.codec import from_json

_HEAD_LIMIT = 4096


def missing(context: Context, files: Manifest) -> MissingBlobs:
    """Which bytes of a folder the workspace does not have yet; blocking."""
    digest = digest_of(files)
    if not context.files.snapshots.has(digest):
        return MissingBlobs(digest, tuple(context.files.snapshots.missing(files)), False)
    # Its age counts from its last use.
    used = update(tables.snapshots).where(tables.snapshots.c.digest == digest).values(used_at=time.time())
    context.database.submit(lambda transaction: transaction.execute(used)).result()
    return MissingBlobs(digest, (), True)


def put(context: Context, digest: str, files: Manifest) -> None:
    """Name a set of files whose bytes are here; blocking."""
    with context.files.code_lock:
        context.files.snapshots.put(digest, files)

    def work(transaction: Transaction) -> None:
        if transaction.execute(select(tables.snapshots).where(tables.snapshots.c.digest == digest)).first() is None:
            size = sum(entry[1] for entry in files.values())
            row = {"digest": digest, "num_files": len(files), "size": size, "created_at": time.time()}
            transaction.execute(insert(tables.snapshots).values(**row))

    context.database.submit(work).result()


def admit_agent(connection: Connection, node: str, digest: str) -> None:
    """Refuse a node the code of runs of which it has no open attempt."""
    runs, placements = tables.runs, tables.placements
    rows = connection.execute(
        select(runs.c.snapshot, runs.c.environment)
        .join(placements, placements.c.run_id == runs.c.id)
        .where(placements.c.node == node, placements.c.phase.in_(states.IS_OPEN))
    )
    if not any(digest in (row.snapshot, build_snapshot(row.environment)) for row in rows):
        raise errors.AccessDenied(f"no open attempt on {node} has the code snapshot {digest}")


def store_blobs(snapshots: Snapshots, pieces: Iterator[bytes]) -> int:
    """Cut a stream of frames into blobs without holding a whole one in memory."""
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
            head = from_json(BlobHead, json.loads(line))
        except ValueError:
            raise errors.JobError(f"{line[:80]!r} is no head of a blob", 'Send {"sha256", "size"}.') from None
        snapshots.put_blob(head.sha256, take(head.size))
        count += 1
