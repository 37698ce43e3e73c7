"""What clients see of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.records import RunRow, find_run, message_of
from muster.server.environments import records
from muster.server.http.paging import Page
from muster.server.nodes import allocations, queue_jobs
from muster.server.queue import outlooks
from muster.server.runs import checkpoints, retries
from muster.server.tracking.filters import RunFilter
from muster.server.tracking.labels import load_params
from muster.server.tracking.reading import last_values
from muster.wire import states
from muster.wire.codec import Json, from_json
from muster.wire.data.access import FileBrief
from muster.wire.runs import (
    AttemptView,
    NodeOfAttempt,
    Progress,
    RankView,
    RunView,
    slowest,
)
from muster.wire.serving.services import serves
from muster.wire.verdicts import Verdict

_FILES = (
    select(tables.files)
    .where(tables.files.c.run_id.in_(bindparam("ids", expanding=True)))
    .order_by(*tables.files.c["attempt", "path", "node_rank"])
)


@dataclass(frozen=True)
class RunFile:
    """A file of a run: the name that people see, and its location in the store."""

    path: str
    size: int
    attempt: int
    location: str
    sha256: str | None = None


def run_views(context: Context, connection: Connection, rows: Sequence[RunRow]) -> list[RunView]:
    """The views of several runs, with one query per kind of part."""
    parts = _load_parts(connection, rows)
    now = clock.now()
    return [
        message_of(
            RunView,
            row,
            reason=reason(context, row, now),
            **vars(outlooks.outlook(context, row, slowest(parts.progress.get(row.id, ())), now)),
            notices=tuple(row.notices),
            verdict=verdict_of(row),
            attempts=_attempts(context, parts, row.id),
            checkpoints=checkpoints.views(parts.checkpoints.get(row.id, ())),
            excluded_nodes=tuple(row.excluded_nodes or ()),
            metrics=parts.metrics.get(row.id, {}),
            params=parts.params.get(row.id, {}),
            progress=slowest(parts.progress.get(row.id, ())),
            files=tuple(
                FileBrief(file.path, file.size) for file in run_files(context, row, parts.files.get(row.id, ()))
            ),
            environment=records.brief(row.environment),
            spec=records.shown_spec(row.spec),
            moved_at=moved_at(context, row),
        )
        for row in rows
    ]


def list_runs(context: Context, connection: Connection, page: Page, wanted: RunFilter) -> list[RunView]:
    """A page of the runs, newest first."""
    conditions = wanted.conditions()
    query = select(tables.runs).where(*conditions).order_by(tables.runs.c.seq.desc())
    if page.limit is not None:
        query = query.limit(page.limit + 1)
    if (seen := page.number_after()) is not None:
        query = query.where(tables.runs.c.seq < seen)
    found = connection.execute(query).all()
    rows = page.trim(found, lambda row: (row.seq,))
    if seen is None and len(rows) < len(found):
        page.say_total(
            connection.execute(select(func.count()).select_from(tables.runs).where(*conditions)).scalar_one()
        )
    return run_views(context, connection, rows)


def run_view(context: Context, connection: Connection, ref: str) -> RunView:
    """One run, whole."""
    return run_views(context, connection, [find_run(connection, ref)])[0]


def verdict_of(row: Any) -> Verdict | None:
    """The recorded verdict of a run or an attempt."""
    return None if row.verdict is None else from_json(Verdict, row.verdict)


def reason(context: Context, row: RunRow, now: float | None = None) -> str:
    """Why a run waits; empty when it does not. With `now` also how long it has been at what takes long."""
    if context.disk.full and row.status not in states.TERMINAL:
        return context.disk.full
    if row.status == states.QUEUED:
        later = retries.waiting_reason(row, clock.now())
        return later or doing(context, row.id, now) or outlooks.waiting(context, row).reason
    if row.status == states.PROVISIONING:
        allocation = context.nodes.allocations.get((row.id, row.attempt))
        if allocation is not None and allocation.reason:
            return allocation.reason
        return f"waits for the agents of its {row.num_nodes} node{'' if row.num_nodes == 1 else 's'} on {row.compute}"
    if row.status == states.PREPARING:
        return doing(context, row.id, now) or "its nodes fetch code and inputs"
    return doing(context, row.id, now) if row.status == states.FINALIZING else ""


def moved_at(context: Context, row: RunRow) -> float | None:
    """When a running run last printed or logged something, as far as this server knows; None for serving runs."""
    if row.status != states.RUNNING or row.started_at is None or serves(row.spec["command"]):
        return None
    return context.runs.moved.get(row.id) or max(float(row.started_at), context.runs.since)


def doing(context: Context, run_id: str, now: float | None = None) -> str:
    """What a run's nodes are doing while they prepare or deliver, with `now` how long; empty when it is quick."""
    contacts = context.hub.contacts.items()
    busy = [
        # A node that came with the run is known by its machine's name.
        (contact.host if name.startswith(f"{run_id}.") and contact.host else name, *contact.doing[run_id])
        for name, contact in contacts
        if run_id in contact.doing
    ]
    if not busy:
        return ""
    name, text, since = min(busy, key=lambda item: item[2])
    others = f" (one of {len(busy)} nodes)" if len(busy) > 1 else ""
    elapsed = f", for {now - since:.0f} s" if now is not None else ""
    return f"{name}: {text}{others}{elapsed}"


def files_of(context: Context, connection: Connection, ref: str, with_checkpoints: bool) -> list[RunFile]:
    """A run's files, on request with those of its checkpoints."""
    row = find_run(connection, ref)
    files = run_files(context, row, _load_files(connection, [row.id]).get(row.id, ()))
    return [*files, *(checkpoint_files(connection, row) if with_checkpoints else ())]


def run_files(context: Context, row: RunRow, stored: Sequence[Any]) -> list[RunFile]:
    """The run's files: those of the last attempt by name, earlier ones under `attempts/N/`."""
    found: list[RunFile] = []
    # Number 0 holds what clients added; nothing is printed there.
    for number in range(row.attempt + 1):
        prefix = "" if number in (0, row.attempt) else f"attempts/{number}/"
        base = f"runs/{row.id}/attempts/{number}"
        for stream, size in context.files.streams.names(row.id, number) if number else ():
            if stream.startswith("user_logs/"):
                found.append(RunFile(prefix + stream, size, number, f"{base}/{stream}"))
        for name, item in visible_names([file for file in stored if file.attempt == number]):
            location = f"{base}/{stored_name(item.node_rank, item.path)}"
            found.append(RunFile(prefix + name, item.size, number, location, item.sha256))
    return found


def checkpoint_files(connection: Connection, row: RunRow) -> list[RunFile]:
    """The files of the kept checkpoints under `checkpoints/NAME`; of equal names the newest."""
    found: dict[str, list[RunFile]] = {}
    for item in checkpoints.resumable(connection, row.id):
        if item.name in found:
            continue
        parts = {part.id: part for part in item.parts}
        found[item.name] = [
            RunFile(
                f"checkpoints/{item.name}" + ("" if file.target == item.name else f"/{file.target}"),
                file.size,
                item.attempt,
                f"{checkpoints.folder_of(parts[file.part])}/{file.path}",
                file.sha256,
            )
            for file in item.files()
        ]
    return [file for files in found.values() for file in files]


def visible_names(rows: Iterable[Any]) -> list[tuple[str, Any]]:
    """Names of an attempt's files, in order of node; where nodes wrote different content by one name, each is kept."""
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


def load_progress(connection: Connection, ids: Sequence[str]) -> dict[str, list[Progress]]:
    """The progress of each rank, by run; a further attempt starts at none."""
    table = tables.progress
    query = select(table).where(table.c.run_id.in_(ids)).order_by(table.c.run_id, table.c.attempt.desc(), table.c.rank)
    newest: dict[str, int] = {}
    found: dict[str, list[Progress]] = defaultdict(list)
    for row in connection.execute(query):
        if newest.setdefault(row.run_id, row.attempt) == row.attempt:
            found[row.run_id].append(Progress(row.done, row.total, row.unit, row.rank))
    return found


@dataclass(frozen=True)
class _Parts:
    """The rows of several runs in other tables, by run."""

    attempts: Mapping[str, Sequence[Any]]
    placements: Mapping[str, Sequence[Any]]
    ranks: Mapping[str, Sequence[Any]]
    checkpoints: Mapping[str, Sequence[Any]]
    metrics: Mapping[str, Mapping[str, Json]]
    params: Mapping[str, Mapping[str, str]]
    progress: Mapping[str, Sequence[Progress]]
    files: Mapping[str, Sequence[Any]]


def _load_parts(connection: Connection, rows: Sequence[RunRow]) -> _Parts:
    files = _load_files(connection, [row.id for row in rows])
    ids = [row.id for row in rows if row.attempt]
    if not ids:
        return _Parts({}, {}, {}, {}, {}, {}, {}, files)
    attempts, placements, ranks, published = (
        _group(connection.execute(select(table).where(table.c.run_id.in_(ids)).order_by(*table.primary_key)))
        for table in (tables.attempts, tables.placements, tables.ranks, tables.checkpoints)
    )
    metrics, progress = last_values(connection, ids), load_progress(connection, ids)
    params = load_params(connection, ids)
    return _Parts(attempts, placements, ranks, published, metrics, params, progress, files)


def _load_files(connection: Connection, ids: Sequence[str]) -> dict[str, list[Any]]:
    return _group(connection.execute(_FILES, {"ids": list(ids)}))


def _attempts(context: Context, parts: _Parts, run_id: str) -> tuple[AttemptView, ...]:
    placements, ranks = parts.placements.get(run_id, ()), parts.ranks.get(run_id, ())
    names = {(row.number, row.node_rank): allocations.shown_name(row) for row in placements}
    return tuple(
        message_of(
            AttemptView,
            attempt,
            resumed_from=next((row.resumed for row in placements if row.number == attempt.number), None),
            verdict=verdict_of(attempt),
            queue_job=queue_jobs.of_attempt(context, attempt),
            nodes=tuple(
                NodeOfAttempt(
                    row.node_rank, names[row.number, row.node_rank], row.address, row.phase, tuple(row.gpus), row.cpus
                )
                for row in placements
                if row.number == attempt.number
            ),
            ranks=tuple(
                message_of(RankView, row, node=names.get((row.number, row.node_rank)))
                for row in ranks
                if row.number == attempt.number
            ),
        )
        for attempt in parts.attempts.get(run_id, ())
    )


def _group(rows: Iterable[Any]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.run_id].append(row)
    return grouped
