"""Runs as a table: their parameters and the summaries of their metrics, in the order of any column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, String, and_, func, or_, select

from muster.server.database import tables
from muster.server.database.records import RunRow, message_of
from muster.server.http.paging import Key, Page, foreign_cursor
from muster.server.tracking.filters import RunFilter
from muster.server.tracking.labels import load_params
from muster.server.tracking.summaries import smaller_is_better
from muster.wire.tracking import Facet, Facets, RunColumn, RunMetric, RunSummary, SummaryValue

_RUNS, _SERIES, _PARAMS = tables.runs, tables.metric_series, tables.params
_IDS_PER_QUERY = 500
_FACETS_MOST = 500
_COLUMNS: Mapping[RunColumn, ColumnElement[Any]] = {
    "created": _RUNS.c.created_at,
    "started": _RUNS.c.started_at,
    "ended": _RUNS.c.ended_at,
    "duration": _RUNS.c.ended_at - _RUNS.c.started_at,
    "name": func.coalesce(_RUNS.c.name, _RUNS.c.display_name, _RUNS.c.id),
    "experiment": _RUNS.c.experiment,
    "status": _RUNS.c.status,
    "person": _RUNS.c.submitted_by,
    "cluster": _RUNS.c.compute,
    "nodes": _RUNS.c.num_nodes,
}


@dataclass(frozen=True)
class Wanted:
    """Which runs are listed, and in which order."""

    filter: RunFilter = field(default_factory=RunFilter)
    runs: Sequence[str] = ()
    """Ids; empty: all."""
    metric: str | None = None
    """Runs that logged it first, by its value; None: the newest first."""
    by: SummaryValue = "best"
    ascending: bool | None = None
    """None: the best first; for other columns the greatest."""
    names: Sequence[str] | None = None
    """The metrics to list for each; None: all."""
    param: str | None = None
    """Order by this parameter: as numbers where it has any."""
    sort: RunColumn | None = None


def list_rows(connection: Connection, page: Page, wanted: Wanted) -> list[RunRow]:
    """A page of runs; the first one says how many there are."""
    conditions = wanted.filter.conditions()
    if wanted.runs:
        conditions.append(_RUNS.c.id.in_(wanted.runs))
    query = select(_RUNS).where(*conditions)
    if wanted.metric:
        rows = _by_metric(connection, query, page, wanted)
    elif wanted.param:
        rows = _by_param(connection, query, page, wanted)
    elif wanted.sort and (wanted.sort != "created" or wanted.ascending):
        rows = _in_order(connection, query, page, _COLUMNS[wanted.sort], bool(wanted.ascending))
    elif wanted.filter.text and page.after is None and page.limit is not None:
        return _first_found(connection, conditions, page)
    else:
        rows = _newest_first(connection, query, page)
    if page.after is None and page.limit is not None and len(rows) == page.limit:
        page.say_total(connection.execute(select(func.count()).select_from(_RUNS).where(*conditions)).scalar_one())
    return rows


def list_summaries(connection: Connection, page: Page, wanted: Wanted) -> list[RunSummary]:
    """A page of runs with what they logged."""
    return summaries_of(connection, list_rows(connection, page, wanted), wanted.names)


def summaries_of(connection: Connection, rows: Sequence[RunRow], names: Sequence[str] | None) -> list[RunSummary]:
    """The summaries of runs, with one query per kind of part."""
    ids = [row.id for row in rows]
    params, metrics = load_params(connection, ids), load_run_metrics(connection, ids, names)
    return [message_of(RunSummary, row, params=params.get(row.id, {}), metrics=metrics.get(row.id, {})) for row in rows]


def load_facets(connection: Connection) -> Facets:
    """What runs can be filtered by, with how many there are of each."""

    def of(column: ColumnElement[Any]) -> tuple[Facet, ...]:
        count = func.count()
        query = select(column, count).select_from(_RUNS).where(column.is_not(None)).group_by(column)
        rows = connection.execute(query.order_by(count.desc(), column).limit(_FACETS_MOST))
        return tuple(Facet(str(value), int(number)) for value, number in rows)

    columns = _RUNS.c
    return Facets(of(columns.status), of(columns.experiment), of(columns.submitted_by), of(columns.compute))


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


def _first_found(connection: Connection, conditions: Sequence[ColumnElement[bool]], page: Page) -> list[RunRow]:
    """The first page of runs that contain words, and their count, in one pass over the runs."""
    found = select(_RUNS.c.seq).where(*conditions).order_by(_RUNS.c.seq.desc())
    numbers = connection.execute(found).scalars().all()
    page.say_total(len(numbers))
    assert page.limit is not None
    query = select(_RUNS).where(_RUNS.c.seq.in_(numbers[: page.limit + 1])).order_by(_RUNS.c.seq.desc())
    return page.trim(connection.execute(query).all(), lambda row: (row.seq,))


def _by_metric(connection: Connection, query: Select[Any], page: Page, wanted: Wanted) -> list[RunRow]:
    assert wanted.metric is not None
    smaller = smaller_is_better(wanted.metric)
    ascending = smaller if wanted.ascending is None else wanted.ascending
    figures = _figures(wanted.metric, wanted.by, smaller).subquery()
    query = query.outerjoin(figures, figures.c.run_id == _RUNS.c.id)
    return _in_order(connection, query, page, figures.c.figure, ascending)


def _by_param(connection: Connection, query: Select[Any], page: Page, wanted: Wanted) -> list[RunRow]:
    of_name = _PARAMS.c.name == wanted.param
    a_number = select(_PARAMS.c.run_id).where(of_name, _PARAMS.c.number.is_not(None)).limit(1)
    column = _PARAMS.c.value if connection.execute(a_number).first() is None else _PARAMS.c.number
    query = query.outerjoin(_PARAMS, and_(_PARAMS.c.run_id == _RUNS.c.id, of_name))
    return _in_order(connection, query, page, column, bool(wanted.ascending))


def _in_order(
    connection: Connection, query: Select[Any], page: Page, figure: ColumnElement[Any], ascending: bool
) -> list[RunRow]:
    """Runs with the figure first, in its order; the cursor is the figure and the run's own number."""
    query = query.add_columns(figure.label("figure"))
    if page.after is not None:
        absent, value, seq = _checked(page.after, is_text=isinstance(figure.type, String))
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


def _checked(after: Key, is_text: bool) -> Key:
    """Validate a cursor of a list in this kind of order."""
    fits = len(after) == 3 and isinstance(after[2], int) and (bool(after[0]) or isinstance(after[1], str) == is_text)
    if not fits:
        raise foreign_cursor()
    return after


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
    # A last value that is not a number cannot be compared.
    return select(_SERIES.c.run_id, _SERIES.c.last_number.label("figure")).join(newest, same).where(of_metric)
