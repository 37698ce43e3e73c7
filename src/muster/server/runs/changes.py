"""What people do to a run: change its names and tags, cancel it, log to it, add files, remove it; each in one write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sqlalchemy import delete, select

from muster import errors
from muster.host import clock
from muster.host.files import safe_path
from muster.host.hashing import Measuring
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import (
    ADD_EVENT,
    PLACEMENTS,
    RUN,
    RunRow,
    add_note,
    event_row,
    find_run,
    move_run,
    record_file,
)
from muster.server.runs import attempts, logged, record_files
from muster.server.tracking.recording import add_points
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.data.access import HashedFile
from muster.wire.runs import CancelledRun, Changes, MetricPoint, MetricReport
from muster.wire.stream import Note, StateChanged
from muster.wire.verdicts import CANCELLED, Verdict

_PARTS = (
    tables.attempts,
    tables.placements,
    tables.ranks,
    tables.events,
    tables.metric_series,
    tables.metric_blocks,
    tables.metric_tails,
    tables.metric_counts,
    tables.params,
    tables.run_tags,
    tables.logged_models,
    tables.progress,
    tables.checkpoints,
    tables.streams,
    tables.output_files,
    tables.files,
    tables.subscriptions,
)


def change(transaction: Transaction, ref: str, changes: Changes) -> str:
    """Change tags, display name or description. Returns the run's id."""
    row = find_run(transaction, ref)
    tags = {**row.tags, **(changes.tags or {})}
    RUN.set(
        transaction,
        row.id,
        tags={key: value for key, value in tags.items() if value is not None},
        display_name=row.display_name if changes.display_name is None else changes.display_name,
        description=row.description if changes.description is None else changes.description,
    )
    return str(row.id)


def cancel(
    context: Context, transaction: Transaction, refs: Sequence[str], force: bool, who: str
) -> list[CancelledRun]:
    """End runs, with grace unless by force; waiting ones end at once."""
    rows = {row.id: row for row in (find_run(transaction, ref) for ref in refs)}
    open_rows = [row for row in rows.values() if row.status not in states.TERMINAL]
    waiting = [row for row in open_rows if row.status == states.QUEUED]
    if waiting:
        _cancel_waiting(context, transaction, waiting, force, who)
    for row in open_rows:
        if row.status == states.NOT_STARTED:
            # A client logs to it; nothing of it runs here.
            move_run(transaction, row.id, states.CANCELED, ended_at=clock.now())
        elif row.status != states.QUEUED:
            RUN.set(transaction, row.id, cancel=_cancel_kind(row, force), cancel_by=who)
            add_note(transaction, row.id, "warning", _cancel_text(row, force, who))
            attempts.advance(context, transaction, row.id)
            nodes = [node.node for node in PLACEMENTS.rows(transaction, row.id, row.attempt)]
            transaction.after_commit.append(partial(context.hub.changed, nodes, [row.id]))
    return [_cancelled(transaction, row) for row in rows.values()]


def give_up(context: Context, transaction: Transaction, runs: Mapping[str, str]) -> None:
    """End queued runs that will never start, each with its reason."""
    now = clock.now()
    for run_id, why in runs.items():
        verdict = to_json(Verdict(CANCELLED, f"it never started: {why}"))
        add_note(transaction, run_id, "warning", f"it never starts: {why}")
        move_run(transaction, run_id, states.CANCELED, ended_at=now, verdict=verdict)
        transaction.after_commit.append(partial(context.runs.unrecorded.add, run_id))
    transaction.after_commit.append(lambda: context.hub.changed(runs=list(runs), queue=True))


def _cancel_waiting(context: Context, transaction: Transaction, rows: Sequence[RunRow], force: bool, who: str) -> None:
    """Cancel many runs in a few statements: a queue of thousands is emptied at once."""
    now = clock.now()
    changed, happened = [], []
    for row in rows:
        what = f"attempt {row.attempt + 1}" if row.attempt else "it"
        verdict = to_json(Verdict(CANCELLED, f"cancelled by {who} before {what} started"))
        ended = {"status": states.CANCELED, "ended_at": now, "verdict": verdict}
        changed.append({"key_id": row.id, "cancel": _cancel_kind(row, force), "cancel_by": who, **ended})
        happened += [
            event_row(row.id, Note("warning", _cancel_text(row, force, who), now)),
            event_row(row.id, StateChanged(states.CANCELED, now)),
        ]
    transaction.execute(RUN.update, changed)
    transaction.execute(ADD_EVENT, happened)
    ids = [row.id for row in rows]
    transaction.after_commit.append(lambda: context.hub.changed(runs=ids, queue=True))
    transaction.after_commit += [partial(context.runs.unrecorded.add, run_id) for run_id in ids]


def _cancel_kind(row: RunRow, force: bool) -> str:
    if row.status == states.FINALIZING:
        return "abandon"
    return "kill" if force or row.cancel == "kill" else "cancel"


def _cancel_text(row: RunRow, force: bool, who: str) -> str:
    if row.status == states.FINALIZING:
        return f"delivery cancelled by {who}"
    return f"{'killed' if force else 'cancel requested'} by {who}"


def _cancelled(transaction: Transaction, row: RunRow) -> CancelledRun:
    if row.status in states.TERMINAL:
        return CancelledRun(row.id, row.status, ended_before=True)
    if row.status == states.QUEUED:
        return CancelledRun(row.id, states.CANCELED)
    return CancelledRun(row.id, RUN.one(transaction, row.id).status)


def forget(transaction: Transaction, ref: str) -> str:
    """Remove a run that has ended from the database. Returns the run's id."""
    row = find_run(transaction, ref)
    if row.status not in states.TERMINAL:
        raise errors.Conflict(f"the run {row.id} is {row.status}", f"Cancel it first: `muster cancel {row.id}`.")
    # A version whose bytes are stored elsewhere no longer needs its run.
    here = (tables.models.c.run_id == row.id, tables.models.c.num_files.is_(None))
    model = transaction.execute(select(tables.models).where(*here)).first()
    if model is not None:
        raise errors.Conflict(
            f"the model {model.name}:{model.version} is stored in the run {row.id}",
            "The run cannot be removed while the model exists.",
        )
    for table in _PARTS:
        transaction.execute(delete(table).where(table.c.run_id == row.id))
    transaction.execute(delete(tables.runs).where(tables.runs.c.id == row.id))
    return str(row.id)


def remove_bytes(context: Context, run_id: str) -> None:
    """Remove the logs and files of a run that was removed from the database; takes time."""
    record_files.forget(context.files.store, run_id)
    context.files.streams.remove(run_id)
    context.files.store.remove(f"runs/{run_id}")


def log_metrics(context: Context, transaction: Transaction, ref: str, reports: tuple[MetricReport, ...]) -> None:
    """Record metric points that no rank logged."""
    row = find_run(transaction, ref)
    points = [
        MetricPoint(item.name, logged.value(item.value), item.step, None, "client", item.type, item.at, row.attempt)
        for item in reports
        if item.name
    ]
    add_points(transaction, row.id, points)
    transaction.after_commit.append(lambda: context.hub.changed(runs=[row.id]))


def store_file(context: Context, run_id: str, path: str, pieces: Iterator[bytes]) -> HashedFile:
    """Store the bytes of a file that a client adds to a run."""
    measuring = Measuring()
    size = context.files.store.put(f"runs/{run_id}/attempts/0/{safe_path(path)}", measuring.passing(pieces))
    return HashedFile(path, size, measuring.sha256)


def add_file(transaction: Transaction, run_id: str, file: HashedFile) -> None:
    """Record a file that a client added; it replaces an earlier one of the same name."""
    record_file(transaction, run_id, 0, 0, file.path, file.size, file.sha256)
