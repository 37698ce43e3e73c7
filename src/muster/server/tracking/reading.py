"""Reads the metrics of a run: summaries, every point, or series thinned out without losing peaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, func, select

from muster.host.points import BLOCK_POINTS, Points, decode
from muster.server.database import tables
from muster.server.database.records import find_run, message_of
from muster.server.http.paging import Page
from muster.server.tracking.recording import tail_points
from muster.server.tracking.summaries import smaller_is_better
from muster.server.tracking.thinning import TIER_STRETCHES, stand_outs, thin, tier_for
from muster.wire.codec import Json
from muster.wire.runs import MetricPoint, MetricSeries, rank_of
from muster.wire.tracking import MetricSummary

P = TypeVar("P", bound=MetricPoint)

_SERIES, _BLOCKS, _TAILS = tables.metric_series, tables.metric_blocks, tables.metric_tails
_SERIES_PER_QUERY = 500
_WINDOW = 4096
"""How many orders are read together for points in order of arrival."""


def load_points(connection: Connection, ref: str, name: str | None, page: Page) -> list[MetricPoint]:
    """A page of a run's points, in the order of arrival."""
    run_id = find_run(connection, ref).id
    found = points_after(
        connection, run_id, page.number_after() or 0, None if page.limit is None else page.limit + 1, name
    )
    return [point for _, point in page.trim(found, lambda item: (item[0],))]


def points_after(
    connection: Connection, run_id: str, after: int, limit: int | None, name: str | None = None
) -> list[tuple[int, MetricPoint]]:
    """Points that came after an order, with the order of each; so many of them, or all."""
    found: list[tuple[int, MetricPoint]] = []
    for window in _windows(connection, run_id, after, name):
        found += window
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


def last_order(connection: Connection, run_id: str) -> int:
    """The order of the newest point of a run."""
    counts = tables.metric_counts
    return connection.execute(select(counts.c.last_order).where(counts.c.run_id == run_id)).scalar() or 0


def load_series(connection: Connection, ref: str, name: str | None, most: int | None) -> list[MetricSeries]:
    """A run's metrics by name, source and attempt, each thinned out to about so many points; None: every point."""
    run_id = find_run(connection, ref).id
    rows = series_rows(connection, run_id, name)
    return [_series_view(row, points) for row, points in read_series(connection, run_id, rows, most)]


def read_series(
    connection: Connection, run_id: str, rows: Sequence[Row[Any]], most: int | None
) -> list[tuple[Row[Any], Points]]:
    """The points of series, by their rows."""
    tails = _tails(connection, run_id, {row.number for row in rows if row.num_points > row.stored})
    tiers = {row.number: 0 if most is None else tier_for(row.stored, most) for row in rows}
    blocks = _blocks(connection, run_id, rows, tiers)
    found = []
    for row in rows:
        points = blocks.pop(row.number, None) or Points()
        if tail := tails.get(row.number):
            points.extend(tail)
        if most is not None and tiers[row.number] and points.orders[-1] != row.last_order:
            points.add(row.last_order, row.last, row.last_step, row.last_at)
        if most is not None:
            points = points.chosen(thin(points.values, most))
        found.append((row, points))
    return found


def load_summaries(connection: Connection, ref: str, name: str | None = None) -> list[MetricSummary]:
    """The summary of each series of a run."""
    return [summary_view(row) for row in series_rows(connection, find_run(connection, ref).id, name)]


def last_values(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
    """The last value of each metric of runs, whoever logged it."""
    newest = (
        select(_SERIES.c.run_id, _SERIES.c.name, func.max(_SERIES.c.last_order).label("last_order"))
        .where(_SERIES.c.run_id.in_(ids))
        .group_by(_SERIES.c.run_id, _SERIES.c.name)
        .subquery()
    )
    same = (
        (_SERIES.c.run_id == newest.c.run_id)
        & (_SERIES.c.name == newest.c.name)
        & (_SERIES.c.last_order == newest.c.last_order)
    )
    query = select(_SERIES.c.run_id, _SERIES.c.name, _SERIES.c.last).join(newest, same).order_by(_SERIES.c.last_order)
    found: dict[str, dict[str, Json]] = defaultdict(dict)
    for run_id, name, value in connection.execute(query):
        found[run_id][name] = value
    return found


def summary_view(row: Row[Any]) -> MetricSummary:
    best_is_least = smaller_is_better(row.name)
    return message_of(
        MetricSummary,
        row,
        rank=rank_of(row.source),
        count=row.num_points,
        best=row.least if best_is_least else row.greatest,
        best_step=row.least_step if best_is_least else row.greatest_step,
    )


def series_rows(connection: Connection, run_id: str, name: str | None = None) -> Sequence[Row[Any]]:
    """The summaries of a run, as rows."""
    query = select(_SERIES).where(_SERIES.c.run_id == run_id).order_by(_SERIES.c.number)
    return connection.execute(query if name is None else query.where(_SERIES.c.name == name)).all()


def _series_view(row: Row[Any], points: Points) -> MetricSeries:
    return MetricSeries(
        row.name, row.source, rank_of(row.source), row.attempt, row.type, row.num_points, row.least, row.greatest,
        tuple(points.values), tuple(points.steps), tuple(points.at), tuple(points.orders),
    )  # fmt: skip


def _blocks(
    connection: Connection, run_id: str, rows: Sequence[Row[Any]], tiers: Mapping[int, int]
) -> dict[int, Points]:
    """The points of each series' blocks at its tier, and those not in a tier yet, at the same density."""
    found: dict[int, Points] = defaultdict(Points)
    for tier in sorted(set(tiers.values())):
        chosen = [row.number for row in rows if tiers[row.number] == tier and row.stored]
        for number, data in _read_blocks(connection, run_id, tier, chosen):
            found[number].extend(decode(data))
        if tier:
            for number, data in _read_blocks(connection, run_id, 0, chosen, open_only=True):
                rest = decode(data)
                found[number].extend(rest.chosen(stand_outs(rest.values, TIER_STRETCHES[tier - 1])))
    return found


def _read_blocks(
    connection: Connection, run_id: str, tier: int, numbers: Sequence[int], open_only: bool = False
) -> Iterator[tuple[int, bytes]]:
    for begin in range(0, len(numbers), _SERIES_PER_QUERY):
        some = numbers[begin : begin + _SERIES_PER_QUERY]
        query = (
            select(_BLOCKS.c.series, _BLOCKS.c.data)
            .where(_BLOCKS.c.run_id == run_id, _BLOCKS.c.tier == tier, _BLOCKS.c.series.in_(some))
            .order_by(_BLOCKS.c.series, _BLOCKS.c.part)
        )
        query = query.where(_BLOCKS.c.count < BLOCK_POINTS) if open_only else query
        yield from connection.execute(query)


def _tails(connection: Connection, run_id: str, wanted: set[int]) -> dict[int, Points]:
    found: dict[int, Points] = defaultdict(Points)
    if wanted:
        query = select(_TAILS.c.points).where(_TAILS.c.run_id == run_id).order_by(_TAILS.c.first_order)
        for number, order, value, step, at in tail_points(connection.execute(query).scalars()):
            if number in wanted:
                found[number].add(order, value, step, at)
    return found


# In the order of arrival


def _windows(
    connection: Connection, run_id: str, after: int, name: str | None
) -> Iterator[list[tuple[int, MetricPoint]]]:
    """Consecutive ranges of points."""
    end = last_order(connection, run_id)
    rows = {row.number: row for row in series_rows(connection, run_id, name)} if end > after else {}
    while rows and after < end:
        bound = after + _WINDOW
        found = [
            *_in_blocks(connection, run_id, rows, after, bound),
            *_in_tails(connection, run_id, rows, after, bound),
        ]
        if found:
            yield sorted(found, key=lambda item: item[0])
        after = bound if found else _next_order(connection, run_id, bound, end)


def _in_blocks(
    connection: Connection, run_id: str, rows: Mapping[int, Row[Any]], after: int, bound: int
) -> Iterator[tuple[int, MetricPoint]]:
    c = _BLOCKS.c
    query = select(c.series, c.data).where(
        c.run_id == run_id, c.tier == 0, c.last_order > after, c.first_order <= bound
    )
    for number, data in connection.execute(query):
        if number in rows:
            points = decode(data)
            for order, value, step, at in zip(points.orders, points.values, points.steps, points.at, strict=True):
                if after < order <= bound:
                    yield order, _point(rows[number], value, step, at)


def _in_tails(
    connection: Connection, run_id: str, rows: Mapping[int, Row[Any]], after: int, bound: int
) -> Iterator[tuple[int, MetricPoint]]:
    c = _TAILS.c
    query = select(c.points).where(c.run_id == run_id, c.last_order > after, c.first_order <= bound)
    for number, order, value, step, at in tail_points(connection.execute(query).scalars()):
        if after < order <= bound and number in rows:
            yield order, _point(rows[number], value, step, at)


def _next_order(connection: Connection, run_id: str, bound: int, end: int) -> int:
    """The order just before the next possible point, after a range without any."""
    firsts = [
        connection.execute(
            select(func.min(table.c.first_order)).where(table.c.run_id == run_id, table.c.last_order > bound)
        ).scalar()
        for table in (_BLOCKS, _TAILS)
    ]
    return max(bound, min((first for first in firsts if first is not None), default=end + 1) - 1)


def _point(row: Row[Any], value: Json, step: float | None, at: float) -> MetricPoint:
    return MetricPoint(row.name, value, step, rank_of(row.source), row.source, row.type, at, row.attempt)
