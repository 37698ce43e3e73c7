"""When a run is likely to start and to end, and how good the forecast was."""

from __future__ import annotations

from dataclasses import dataclass

from muster.control.scheduling.explain import Waiting
from muster.server.context import Context
from muster.server.database.records import RunRow
from muster.server.queue.estimates import first_forecast, of_attempt, with_progress
from muster.wire import states
from muster.wire.runs import Between, Progress
from muster.wire.serving.services import serves

_HAS_NODES = (states.PREPARING, states.RUNNING)


@dataclass(frozen=True)
class Outlook:
    """The expected times in the views of a run."""

    starts_at: float | None = None
    starts_between: Between | None = None
    told_at_first: Between | None = None
    ends_between: Between | None = None


def outlook(context: Context, row: RunRow, progress: Progress | None, now: float) -> Outlook:
    """All that is known of a run's start and end."""
    first = _first(row)
    if row.status == states.QUEUED:
        known = waiting(context, row).starts_at
        interval = context.runs.queue.starts_between(row.id, now)
        if interval is None:
            return Outlook(known, told_at_first=first)
        return Outlook(known or interval.likely_at, Between(interval.low_at, interval.high_at), first)
    allocation = context.nodes.allocations.get((row.id, row.attempt))
    if row.status == states.PROVISIONING and allocation is not None:
        return Outlook(allocation.starts_at, told_at_first=first)
    if row.status not in _HAS_NODES or serves(row.spec.get("command", "")):
        return Outlook(told_at_first=first)
    queue = context.runs.queue
    running = queue.holding(row.id)
    elapsed_s = max(0.0, now - (row.started_at or now)) if running is None else running.elapsed_s(now)
    before_s = 0.0 if running is None else running.before_s
    length = with_progress(of_attempt(queue.learned.length_of(row), row.timeout_s, before_s), elapsed_s, progress)
    ends = Between(now + length.quantile(0.1, elapsed_s), now + length.quantile(0.9, elapsed_s))
    return Outlook(told_at_first=first, ends_between=ends)


def waiting(context: Context, row: RunRow) -> Waiting:
    """The reason why a queued run waits, as the scheduler's last pass found."""
    known = context.runs.queue.explanations
    return (known.of(row.id) if known else None) or Waiting("waits for the next pass of the scheduler")


def _first(row: RunRow) -> Between | None:
    if row.forecast is None:
        return None
    forecast = first_forecast(row.forecast).first
    return Between(
        forecast.low_at, forecast.high_at, None if row.started_at is None else forecast.holds(row.started_at)
    )
