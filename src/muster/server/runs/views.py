"""What clients see of a run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from muster.control.scheduling.explain import Waiting
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import RunRow
from muster.server.environments import records
from muster.server.nodes import allocations
from muster.server.runs import checkpoints, retries
from muster.wire import states

_FILES = (
    select(tables.files)
    .where(tables.files.c.run_id == bindparam("run_id"))
    .order_by(tables.files.c.attempt, tables.files.c.path, tables.files.c.node_rank)
)


@dataclass(frozen=True)
class RunFile:
    """A file of a run by the name that people see, and where it lies in the store."""

    path: str
    size: int
    attempt: int
    location: str
    sha256: str | None = None


def run_views(context: Context, connection: Connection, rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The views of several runs, with one query for each kind of part."""
    ids = [row.id for row in rows if row.attempt]
    parts = {
        table.name: _group(
            connection.execute(select(table).where(table.c.run_id.in_(ids)).order_by(*table.primary_key))
        )
        for table in (tables.attempts, tables.placements, tables.ranks, tables.checkpoints)
        if ids
    }
    metrics = _last_metrics(connection, ids) if ids else {}
    return [
        {
            "id": row.id,
            "name": row.name,
            "display_name": row.display_name,
            "experiment": row.experiment,
            "status": row.status,
            "reason": reason(context, row, time.time()),
            "starts_at": waiting(context, row).starts_at if row.status == states.QUEUED else None,
            "created_at": row.created_at,
            "queued_at": row.queued_at,
            "started_at": row.started_at,
            "ended_at": row.ended_at,
            "submitted_by": row.submitted_by,
            "compute": row.compute,
            "tags": row.tags,
            "description": row.description,
            "num_nodes": row.num_nodes,
            "num_ranks": row.num_ranks,
            "notices": row.notices,
            "verdict": row.verdict,
            "attempts": _attempts(row.id, parts),
            "checkpoints": checkpoints.views(parts.get("checkpoints", {}).get(row.id, ())),
            "retry_at": row.retry_at,
            "excluded_nodes": row.excluded_nodes or [],
            "metrics": metrics.get(row.id, {}),
            "progress": row.progress,
            "files": [{"path": file.path, "size": file.size} for file in run_files(context, connection, row)],
            "environment": records.brief(row.environment),
            "spec": records.shown_spec(row.spec),
        }
        for row in rows
    ]


def reason(context: Context, row: RunRow, now: float | None = None) -> str:
    """Why a run waits; empty when it does not. With `now` also for how long it has been at what takes long."""
    if row.status == states.QUEUED:
        return retries.waiting_reason(row, time.time()) or waiting(context, row).reason
    if row.status == states.PROVISIONING:
        told = context.states.get((row.id, row.attempt))
        if told is not None and told.reason:
            return told.reason
        return f"waits for the agents of its {row.num_nodes} node{'' if row.num_nodes == 1 else 's'} on {row.compute}"
    if row.status == states.PREPARING:
        return doing(context, row.id, now) or "its nodes fetch code and inputs"
    return doing(context, row.id, now) if row.status == states.FINALIZING else ""


def doing(context: Context, run_id: str, now: float | None = None) -> str:
    """What a run's nodes are at while they prepare or deliver, with `now` for how long; empty when it is soon done."""
    told = [(name, *contact.doing[run_id]) for name, contact in context.hub.contacts.items() if run_id in contact.doing]
    if not told:
        return ""
    name, text, since = min(told, key=lambda item: item[2])
    others = f" (one of {len(told)} nodes)" if len(told) > 1 else ""
    elapsed = f", for {now - since:.0f} s" if now is not None else ""
    return f"{name}: {text}{others}{elapsed}"


def waiting(context: Context, row: RunRow) -> Waiting:
    """What a queued run waits for, as the scheduler's last pass found."""
    known = context.board.explanations
    return (known.of(row.id) if known else None) or Waiting("waits for the next pass of the scheduler")


def run_files(context: Context, connection: Connection, row: RunRow) -> list[RunFile]:
    """The run's files: those of the last attempt by their names, earlier ones under `attempts/N/`."""
    stored = connection.execute(_FILES, {"run_id": row.id}).all()
    found: list[RunFile] = []
    for number in range(row.attempt + 1):
        prefix = "" if number in (0, row.attempt) else f"attempts/{number}/"
        base = f"runs/{row.id}/attempts/{number}"
        for stream, size in context.streams.names(row.id, number):
            if stream.startswith("user_logs/"):
                found.append(RunFile(prefix + stream, size, number, f"{base}/{stream}"))
        for name, item in visible_names([file for file in stored if file.attempt == number]):
            location = f"{base}/{stored_name(item.node_rank, item.path)}"
            found.append(RunFile(prefix + name, item.size, number, location, item.sha256))
    return found


def checkpoint_files(connection: Connection, row: RunRow) -> list[RunFile]:
    """The files of the checkpoints that are kept, under `checkpoints/NAME`; of those with one name the newest."""
    found: dict[str, list[RunFile]] = {}
    for item in checkpoints.resumable(connection, row.id):
        if item.name in found:
            continue
        parts = {part.id: part for part in item.parts}
        found[item.name] = [
            RunFile(
                f"checkpoints/{item.name}" + ("" if file["target"] == item.name else f"/{file['target']}"),
                file["size"],
                item.attempt,
                f"{checkpoints.folder_of(parts[file['part']])}/{file['path']}",
                file["sha256"],
            )
            for file in item.files()
        ]
    return [file for files in found.values() for file in files]


def visible_names(rows: Iterable[Any]) -> list[tuple[str, Any]]:
    """Names of an attempt's files, given in order of node; where nodes wrote one name differently, each is kept."""
    first: dict[str, str] = {}
    names: list[tuple[str, Any]] = []
    for row in rows:
        if row.path not in first:
            first[row.path] = row.sha256
            names.append((row.path, row))
        elif row.sha256 != first[row.path]:
            names.append((f"node_{row.node_rank}/{row.path}", row))
    return names


def stored_name(node_rank: int, path: str) -> str:
    return path if node_rank == 0 else f"node_{node_rank}/{path}"


def _attempts(run_id: str, parts: dict[str, dict[str, list[Any]]]) -> list[dict[str, Any]]:
    placements = parts.get("placements", {}).get(run_id, [])
    ranks = parts.get("ranks", {}).get(run_id, [])
    names = allocations.shown_names(placements)
    return [
        {
            "number": attempt.number,
            "status": attempt.status,
            "created_at": attempt.created_at,
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "resumed_from": next((row.resumed for row in placements if row.number == attempt.number), None),
            "verdict": attempt.verdict,
            "nodes": [
                {
                    "rank": row.node_rank,
                    "name": names[row.number, row.node_rank],
                    "address": row.address,
                    "phase": row.phase,
                    "gpus": row.gpus,
                }
                for row in placements
                if row.number == attempt.number
            ],
            "ranks": [
                {
                    "rank": row.rank,
                    "node": names.get((row.number, row.node_rank)),
                    "role": row.role,
                    "state": row.state,
                    "pid": row.pid,
                    "started_at": row.started_at,
                    "ended_at": row.ended_at,
                    "exit_code": row.exit_code,
                    "signal": row.signal,
                    "expected": row.expected,
                    "log": row.log,
                }
                for row in ranks
                if row.number == attempt.number
            ],
        }
        for attempt in parts.get("attempts", {}).get(run_id, [])
    ]


def _last_metrics(connection: Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    metrics = tables.metrics
    last = select(func.max(metrics.c.id)).where(metrics.c.run_id.in_(ids)).group_by(metrics.c.run_id, metrics.c.name)
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in connection.execute(select(metrics).where(metrics.c.id.in_(last))):
        found[row.run_id][row.name] = row.value
    return found


def _group(rows: Iterable[Any]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.run_id].append(row)
    return grouped
