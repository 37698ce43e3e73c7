"""The table of runs, cached: read once for all clients while nothing changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from muster.host import clock
from muster.server.context import Context
from muster.server.database.records import RunRow
from muster.server.http.paging import Page
from muster.server.queue import outlooks
from muster.server.runs.views import load_progress, reason, verdict_of
from muster.server.tracking import listing
from muster.server.tracking.answers import Answer
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.runs import Progress, slowest
from muster.wire.tracking import RunSummary
from muster.wire.workspace import TOTAL_HEADER


def answer(context: Context, connection: Connection, page: Page, wanted: listing.Wanted, tag: str) -> Answer:
    """A page of runs with their metrics and progress."""
    rows = listing.list_rows(connection, page, wanted)
    found = listing.summaries_of(connection, rows, wanted.names)
    body = json.dumps(to_json(_with_life(context, connection, rows, found)), separators=(",", ":")).encode()
    sent = {name: value for name in ("Link", TOTAL_HEADER) if (value := page.response.headers.get(name))}
    return Answer(tag, body, sent)


def _with_life(
    context: Context, connection: Connection, rows: Sequence[RunRow], found: Sequence[RunSummary]
) -> list[RunSummary]:
    """Summaries with progress, the time left, why a run waits and how it failed."""
    ids = [row.id for row in rows if row.attempt]
    progress = load_progress(connection, ids) if ids else {}
    now = clock.now()
    return [
        _alive(context, row, one, slowest(progress.get(row.id, ())), now) for row, one in zip(rows, found, strict=True)
    ]


def _alive(context: Context, row: RunRow, one: RunSummary, progress: Progress | None, now: float) -> RunSummary:
    verdict = verdict_of(row)
    message = verdict.message if verdict is not None and row.status != states.COMPLETED else ""
    if row.status in states.TERMINAL:
        return replace(one, progress=progress, verdict=message)
    seen = outlooks.outlook(context, row, progress, now)
    return replace(
        one,
        progress=progress,
        verdict=message,
        reason=reason(context, row),
        starts_at=seen.starts_at,
        ends_between=seen.ends_between,
    )
