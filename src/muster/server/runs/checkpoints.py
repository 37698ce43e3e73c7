"""Checkpoints: complete or absent, and only from the current attempt."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from muster import errors
from muster.defaults import CHECKPOINTS_KEPT
from muster.host.files import safe_path
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event
from muster.wire import states
from muster.wire.checkpoints import CheckpointFile, CheckpointView, Publication
from muster.wire.codec import to_json
from muster.wire.stream import CheckpointPublished

_PART = re.compile(r"part_\d+_of_(\d+)")
_BEST = "best"
_PUBLISHED_BY = (
    select(tables.checkpoints.c.id)
    .where(tables.checkpoints.c.run_id == bindparam("of_run"), tables.checkpoints.c.attempt == bindparam("of_attempt"))
    .limit(1)
)


@dataclass(frozen=True)
class Checkpoint:
    """What an attempt can resume from: the parts that its nodes published under one name."""

    id: int
    attempt: int
    name: str
    parts: tuple[Any, ...]

    def files(self) -> list[CheckpointFile]:
        """Every file by its target name, once; where nodes wrote different content by one name, each is kept."""
        first: dict[str, str] = {}
        found: list[CheckpointFile] = []
        for part in self.parts:
            for file in part.files:
                path, sha256 = file["path"], file["sha256"]
                if first.get(path) == sha256:
                    continue
                target = path if path not in first else f"node_{part.node_rank}/{path}"
                first.setdefault(path, sha256)
                found.append(CheckpointFile(path, file["size"], sha256, target, part.id))
        return found


def admit(connection: Connection, run: str, attempt: int, node: str) -> int:
    """The node's rank in the attempt; raises where the attempt may not publish, as a stale gang may not."""
    runs, attempts, placements = tables.runs, tables.attempts, tables.placements
    row = connection.execute(
        select(runs.c.attempt, runs.c.status, attempts.c.ended_at, placements.c.node_rank, placements.c.phase)
        .join(attempts, attempts.c.run_id == runs.c.id)
        .join(placements, (placements.c.run_id == runs.c.id) & (placements.c.number == attempts.c.number))
        .where(runs.c.id == run, attempts.c.number == attempt, placements.c.node == node)
    ).first()
    if row is None:
        raise errors.NotFound(f"attempt {attempt} of {run} is not on {node}")
    given_up = row.phase in (states.GIVEN_UP, states.CLOSED)
    if row.attempt != attempt or row.ended_at is not None or row.status in states.TERMINAL or given_up:
        raise errors.Conflict(f"attempt {attempt} of {run} is over", "What it publishes is not taken any more.")
    return int(row.node_rank)


def check_whole(context: Context, node: str, given: Publication) -> None:
    """Refuse a checkpoint of which the store lacks a file; done before the write, because it may be slow."""
    node_rank = context.database.read_now(lambda c: admit(c, given.run, given.attempt, node))
    for file in given.files:
        if not context.files.store.exists(location(given.run, given.attempt, node_rank, given.key, file.path)):
            raise errors.JobError(f"{file.path} of the checkpoint {given.name} is not here", "Send it first.")


def publish(context: Context, transaction: Transaction, node: str, given: Publication) -> list[str]:
    """Record a checkpoint whose files are all stored; returns what may be removed from the store now."""
    node_rank = admit(transaction.connection, given.run, given.attempt, node)
    table = tables.checkpoints
    own = {"run_id": given.run, "attempt": given.attempt, "node_rank": node_rank, "key": given.key}
    known = transaction.execute(select(table.c.id).where(*(table.c[name] == value for name, value in own.items())))
    if known.first() is not None:
        return []
    size = sum(file.size for file in given.files)
    row = {"name": given.name, "files": to_json(given.files), "size": size, "at": given.at}
    transaction.execute(insert(table).values(**own, **row))
    event = CheckpointPublished(given.name, given.attempt, node, size, time.time())
    add_event(transaction, given.run, event)
    transaction.after_commit.append(lambda: context.hub.changed(runs=[given.run]))
    return _prune(transaction, given.run)


def resumable(connection: Connection, run_id: str, before: int | None = None) -> list[Checkpoint]:
    """Complete checkpoints of a run, the newest first; those of attempts earlier than `before` where it is given."""
    table = tables.checkpoints
    query = select(table).where(table.c.run_id == run_id).order_by(table.c.attempt, table.c.at, table.c.id)
    if before is not None:
        query = query.where(table.c.attempt < before)
    return complete_sets(connection.execute(query).all())


def find(connection: Connection, run: str, node: str, checkpoint: int) -> Checkpoint:
    """A complete checkpoint of a run that is placed on the node."""
    placements = tables.placements
    open_here = placements.c.phase.in_(states.IS_OPEN)
    here = select(placements.c.node).where(placements.c.run_id == run, placements.c.node == node, open_here)
    found = next((item for item in resumable(connection, run) if item.id == checkpoint), None)
    if found is None or connection.execute(here).first() is None:
        raise errors.NotFound(f"there is no checkpoint {checkpoint} of {run} for {node}")
    return found


def published_by(transaction: Transaction, run_id: str, number: int) -> bool:
    """Whether an attempt published a checkpoint of its own."""
    return transaction.execute(_PUBLISHED_BY, {"of_run": run_id, "of_attempt": number}).first() is not None


def complete_sets(rows: Sequence[Any]) -> list[Checkpoint]:
    """Checkpoints, the newest first. Where several nodes publish, one counts when each of them has its part.

    A file `part_I_of_N` in each part says how many there are; without one, every node that published anything in the
    attempt counts.
    """
    nodes: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        nodes[row.attempt].add(row.node_rank)
    found: list[Checkpoint] = []
    parts: dict[tuple[int, str], dict[int, Any]] = defaultdict(dict)
    for row in rows:
        declared = _declared_parts(row)
        if declared == 1 or (declared is None and len(nodes[row.attempt]) == 1):
            found.append(Checkpoint(row.id, row.attempt, row.name, (row,)))
            continue
        here = parts[row.attempt, row.name]
        here[row.node_rank] = row
        if len(here) == declared if declared else here.keys() == nodes[row.attempt]:
            ordered = tuple(here[rank] for rank in sorted(here))
            found.append(Checkpoint(max(part.id for part in ordered), row.attempt, row.name, ordered))
            parts[row.attempt, row.name] = {}
    return found[::-1]


def _declared_parts(row: Any) -> int | None:
    matches = (_PART.fullmatch(file["path"]) for file in row.files)
    return next((int(match[1]) for match in matches if match), None)


def superseded(rows: Sequence[Any], keep: int = 1) -> list[Any]:
    """Those of a run's checkpoints that are older than its last few complete ones."""
    ordered = sorted(rows, key=_order)
    kept = complete_sets(ordered)[:keep]
    if len(kept) < keep:
        return []
    needed = {part.id for checkpoint in kept for part in checkpoint.parts}
    oldest = min(_age(part) for checkpoint in kept for part in checkpoint.parts)
    return [row for row in ordered if row.id not in needed and _age(row) < oldest]


def location(run: str, attempt: int, node_rank: int, key: str, path: str) -> str:
    return f"{_folder(run, attempt, node_rank, key)}/{safe_path(path)}"


def _folder(run: str, attempt: int, node_rank: int, key: str) -> str:
    return f"runs/{safe_path(run)}/checkpoints/{attempt}/node_{node_rank}/{key[:16]}"


def _prune(transaction: Transaction, run_id: str) -> list[str]:
    """Remove what is older than the last few complete ones, but not the best; returns the folders that held it."""
    table = tables.checkpoints
    spec = transaction.execute(select(tables.runs.c.spec).where(tables.runs.c.id == run_id)).scalar() or {}
    keep = (spec.get("retry") or {}).get("keep_checkpoints") or CHECKPOINTS_KEPT
    rows = transaction.execute(select(table).where(table.c.run_id == run_id)).all()
    complete = complete_sets(sorted(rows, key=_order))
    best = next((item for item in complete if any(file.path == _BEST for file in item.files())), None)
    spared = {part.id for part in best.parts} if best else set()
    gone = [row for row in superseded(rows, keep) if row.id not in spared]
    ids = {row.id for row in gone}
    if ids:
        transaction.execute(delete(table).where(table.c.id.in_(ids)))
    used = {folder_of(row) for row in rows if row.id not in ids}
    return sorted({folder_of(row) for row in gone} - used)


def _age(row: Any) -> tuple[int, float]:
    return (row.attempt, row.at)


def _order(row: Any) -> tuple[int, float, int]:
    return (*_age(row), row.id)


def folder_of(row: Any) -> str:
    """The folder of a checkpoint in the workspace store."""
    return _folder(row.run_id, row.attempt, row.node_rank, row.key)


def views(rows: Iterable[Any]) -> tuple[CheckpointView, ...]:
    """What clients see of a run's checkpoints, the newest first."""
    return tuple(
        CheckpointView(
            id=item.id,
            attempt=item.attempt,
            name=item.name,
            size=sum(part.size for part in item.parts),
            at=max(part.at for part in item.parts),
        )
        for item in complete_sets(sorted(rows, key=_order))
    )
