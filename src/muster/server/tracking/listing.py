"""Runs as a table: their parameters and the summaries of their metrics, in the order of one of these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from muster.server.database import tables
from muster.server.database.records import RunRow, message_of
from muster.server.http.paging import Page
from muster.server.tracking.labels import load_params
from muster.server.tracking.summaries import smaller_is_better
from muster.wire.tracking import RunMetric, RunSummary, SummaryValue

_RUNS, _SERIES = tables.runs, tables.metric_series
_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class Wanted:
    """Which runs are listed, and in which order."""

    experiment: str | None = None
    status: Sequence[str] = ()
    runs: Sequence[str] = ()
    """Ids; empty: all."""
    metric: str | None = None
    """Runs that logged it first, by its value; None: the newest first."""
    by: SummaryValue = "best"
    ascending: bool | None = None
    """None: the best first."""
    names: Sequence[str] | None = None
    """The metrics that are wanted of each; None: all."""


def list_summaries(connection: Connection, page: Page, wanted: Wanted) -> list[RunSummary]:
    """A page of runs with what they logged."""
    query = select(_RUNS)
    if wanted.experiment:
        query = query.where(_RUNS.c.experiment == wanted.experiment)
    if wanted.status:
        query = query.where(_RUNS.c.status.in_(wanted.status))
    if wanted.runs:
        query = query.where(_RUNS.c.id.in_(wanted.runs))
    rows = _by_metric(connection, query, page, wanted) if wanted.metric else _newest_first(connection, query, page)
    return summaries_of(connection, rows, wanted.names)


def summaries_of(connection: Connection, rows: Sequence[RunRow], names: Sequence[str] | None) -> list[RunSummary]:
    """What is shown of runs, with one query for each kind of part."""
    ids = [row.id for row in rows]
    params, metrics = load_params(connection, ids), load_run_metrics(connection, ids, names)
    return [message_of(RunSummary, row, params=params.get(row.id, {}), metrics=metrics.get(row.id, {})) for row in rows]


def load_run_metrics(
    connection: Connection, ids: Sequence[str], names: Sequence[str] | None = None
) -> dict[str, dict[str, RunMetric]]:
    """Each metric of runs over all its sources and attempts."""
    found: dict[str, dict[str, RunMetric]] = defaultdict(dict)
    columns = _SERIES.c["run_id", "name", "num_points", "last", "least", "greatest", "last_step", "last_at"]
    for begin in range(0, len(ids), _IDS_PER_QUERY):
        query = select(*columns).where(_SERIES.c.run_id.in_(ids[begin : begin + _IDS_PER_QUERY]))
        if names is not None:
            query = query.where(_SERIES.c.name.in_(names))
        for run_id, name, *values in map(tuple, connection.execute(query.order_by(_SERIES.c.last_order))):
            found[run_id][name] = _merged(name, found[run_id].get(name), *values)
    return found


def _merged(
    name: str,
    known: RunMetric | None,
    count: int,
    last: Any,
    least: float | None,
    greatest: float | None,
    last_step: float | None,
    last_at: float,
) -> RunMetric:
    """A metric with one more series, which ended after those before it."""
    if known is not None:
        count += known.count
        least = min((value for value in (known.least, least) if value is not None), default=None)
        greatest = max((value for value in (known.greatest, greatest) if value is not None), default=None)
    best = least if smaller_is_better(name) else greatest
    return RunMetric(last, best, least, greatest, count, last_step, last_at)


def _newest_first(connection: Connection, query: Select[Any], page: Page) -> list[RunRow]:
    if (seen := page.number_after()) is not None:
        query = query.where(_RUNS.c.seq < seen)
    query = query.order_by(_RUNS.c.seq.desc())
    if page.limit is not None:
        query = query.limit(page.limit + 1)
    return page.trim(connection.execute(query).all(), lambda row: (row.seq,))


def _by_metric(connection: Connection, query: Select[Any], page: Page, wanted: Wanted) -> list[RunRow]:
    """Runs with a number for the metric first; the cursor is that number and the run's own."""
    assert wanted.metric is not None
    smaller = smaller_is_better(wanted.metric)
    ascending = smaller if wanted.ascending is None else wanted.ascending
    figures = _figures(wanted.metric, wanted.by, smaller).subquery()
    figure: ColumnElement[Any] = figures.c.figure
    query = query.add_columns(figure).outerjoin(figures, figures.c.run_id == _RUNS.c.id)
    if page.after is not None and len(page.after) == 3:
        absent, value, seq = page.after
        later = figure > value if ascending else figure < value
        same = and_(figure == value, _RUNS.c.seq < seq)
        alone = and_(figure.is_(None), _RUNS.c.seq < seq)
        query = query.where(alone if absent else or_(later, same, figure.is_(None)))
    order = figure.asc() if ascending else figure.desc()
    query = query.order_by(figure.is_(None), order, _RUNS.c.seq.desc())
    if page.limit is not None:
        query = query.limit(page.limit + 1)
    return page.trim(
        connection.execute(query).all(),
        lambda row: (1, 0, row.seq) if row.figure is None else (0, row.figure, row.seq),
    )


def _figures(metric: str, by: SummaryValue, smaller: bool) -> Select[Any]:
    """One number for each run that logged a metric."""
    if by == "best":
        by = "least" if smaller else "greatest"
    of_metric = _SERIES.c.name == metric
    if by != "last":
        value = func.min(_SERIES.c.least) if by == "least" else func.max(_SERIES.c.greatest)
        return select(_SERIES.c.run_id, value.label("figure")).where(of_metric).group_by(_SERIES.c.run_id)
    newest = (
        select(_SERIES.c.run_id, func.max(_SERIES.c.last_order).label("last_order"))
        .where(of_metric)
        .group_by(_SERIES.c.run_id)
        .subquery()
    )
    same = and_(_SERIES.c.run_id == newest.c.run_id, _SERIES.c.last_order == newest.c.last_order)
    # A last value that is no number has no extremes of its own to be compared by.
    return select(_SERIES.c.run_id, _SERIES.c.last_number.label("figure")).join(newest, same).where(of_metric)
