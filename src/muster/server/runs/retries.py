"""Further attempts: automatic where the policy says so, or by hand. Everything here runs inside one write."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import bindparam, select

from muster import errors
from muster.control.retry import Past, Policy, Retry, Stop, decide
from muster.host import clock
from muster.job import parts
from muster.job.explain import make_spec
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import RUN, add_note, find_run, move_run
from muster.server.runs import checkpoints
from muster.server.runs.attempt_record import AttemptRecord
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.verdicts import COMPLETED, Verdict

_VERDICTS_BEFORE = (
    select(tables.attempts.c.verdict)
    .where(
        tables.attempts.c.run_id == bindparam("of_run"),
        tables.attempts.c.number >= bindparam("first"),
        tables.attempts.c.number < bindparam("number"),
    )
    .order_by(tables.attempts.c.number)
)


def workspace_policy(given: Json) -> parts.Retry:
    """The `retry` of a workspace, validated like that of a job file."""
    return make_spec({"command": "true", "retry": given or {}}).retry


def follow(context: Context, transaction: Transaction, record: AttemptRecord, verdict: Verdict) -> Retry | Stop:
    """What follows the attempt that has just ended with this verdict."""
    run = record.run
    if run.cancel and verdict.code != COMPLETED:
        return Stop("no further attempt: somebody cancelled the run")
    first, number = run.budget_from or 1, record.attempt.number
    before = {"of_run": run.id, "first": first, "number": number}
    rows = transaction.execute(_VERDICTS_BEFORE, before).scalars() if first < number else ()
    past = [Past(item["code"], item.get("node"), of_script=bool(item.get("of_script"))) for item in rows if item]
    policy = Policy.of(context.runs.retry, parts.Retry.model_validate(run.spec.get("retry") or {}, strict=False))
    progressed = verdict.code != COMPLETED and checkpoints.published_by(transaction, run.id, number)
    return decide([*past, Past(verdict.code, verdict.node, progressed, verdict.of_script)], policy, run.id)


def enqueue(context: Context, transaction: Transaction, record: AttemptRecord, retry: Retry, now: float) -> None:
    """Put the run back into the queue, for its next attempt."""
    columns = {"queued_at": now, "retry_at": now + retry.delay_s, "excluded_nodes": list(retry.exclude)}
    record.move(states.QUEUED, **columns, verdict=None)
    record.note("warning", next_step(retry))
    transaction.after_commit.append(lambda: context.hub.wake_scheduler_at(now + retry.delay_s))


def next_step(retry: Retry) -> str:
    """What Muster does next, for people."""
    when = f"starts in {retry.delay_s:.1f} s" if retry.delay_s >= 0.05 else "starts now"
    off = f", not on {', '.join(retry.exclude)} where others are free" if retry.exclude else ""
    return f"{retry.why}; {when}{off}"


def by_hand(context: Context, transaction: Transaction, ref: str, who: str) -> str:
    """One more attempt of a run that has ended, with fresh budgets. Returns the run's id."""
    row = find_run(transaction, ref)
    if row.status == states.COMPLETED:
        raise errors.Conflict(
            f"the run {row.id} has completed", f"`muster rerun {row.id}` runs it once more, as a new run."
        )
    if row.status not in states.TERMINAL:
        raise errors.Conflict(f"the run {row.id} is {row.status}", "Only a run that has ended can be retried.")
    if not row.num_nodes:
        raise errors.Conflict(f"the run {row.id} was logged by a client and has no job", "There is nothing to run.")
    fresh = {"cancel": None, "cancel_by": None, "ended_at": None, "verdict": None, "retry_at": None}
    RUN.set(transaction, row.id, **fresh, excluded_nodes=[], budget_from=row.attempt + 1, queued_at=clock.now())
    add_note(transaction, row.id, "info", f"attempt {row.attempt + 1}: asked for by {who}")
    move_run(transaction, row.id, states.QUEUED)
    transaction.after_commit.append(lambda: context.hub.changed(runs=[row.id], queue=True))
    return str(row.id)


def take_up(context: Context, transaction: Transaction) -> None:
    """After a start of the server or a change of the clock: wake the scheduler when a further attempt is due."""
    runs, now = tables.runs, clock.now()
    waiting = select(runs.c.id, runs.c.queued_at, runs.c.retry_at).where(
        runs.c.status == states.QUEUED, runs.c.retry_at.is_not(None)
    )
    for row in transaction.execute(waiting).all():
        due = due_at(row.queued_at or now, row.retry_at, now)
        if due != row.retry_at:
            RUN.set(transaction, row.id, retry_at=due)
        context.hub.wake_scheduler_at(due)


def due_at(queued_at: float, retry_at: float, now: float) -> float:
    """When a further attempt is due: never later than its whole backoff from now, in case the clock was set back."""
    return min(retry_at, now + max(0.0, retry_at - queued_at))


def waiting_reason(row: Any, now: float) -> str | None:
    """Why a requeued run waits while its next attempt is not due."""
    if row.retry_at is None or row.retry_at <= now:
        return None
    moment = time.strftime("%H:%M:%S", time.localtime(row.retry_at))
    return f"attempt {row.attempt + 1} starts at {moment} (in {row.retry_at - now:.0f} s)"
