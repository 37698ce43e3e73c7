"""The metrics of a run for those who ask: every point, or series that are thinned out without losing their peaks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Text, cast, select, type_coerce
from sqlalchemy.types import NullType

from muster.server.database import tables
from muster.server.database.records import find_run
from muster.server.http.paging import Page
from muster.server.runs.logged import rank_of
from muster.wire.codec import Json
from muster.wire.runs import MetricPoint, MetricSeries

P = TypeVar("P", bound=MetricPoint)

_METRICS = tables.metrics
_BUFFERED = 100
"""How many times the wanted points of a series are held before they are thinned out."""


def load_points(connection: Connection, ref: str, name: str | None, page: Page) -> list[MetricPoint]:
    """A page of a run's points, in the order of arrival."""
    query = _query(connection, ref, name, _METRICS.c.value)
    if (seen := page.number_after()) is not None:
        query = query.where(_METRICS.c.id > seen)
    if page.limit is not None:
        query = query.limit(page.limit + 1)
    return [metric_point(MetricPoint, row) for row in page.trim(connection.execute(query).all(), lambda row: (row.id,))]


def metric_point(kind: type[P], row: Any) -> P:
    """A row of the metrics table as a message of the given type."""
    return kind(row.name, row.value, row.step, rank_of(row.source), row.source, row.type, row.at, row.attempt)


def load_series(connection: Connection, ref: str, name: str | None, most: int | None) -> list[MetricSeries]:
    """A run's metrics by name, source and attempt, each thinned out to about so many points; None: every point."""
    found: dict[tuple[str, str, int, str], _Series] = {}
    query = _query(connection, ref, name, _undecoded(connection))
    rows = connection.execution_options(stream_results=True).execute(query).yield_per(10_000)
    for number, metric, source, attempt, kind, step, at, value in map(tuple, rows):
        series = found.get(key := (metric, source, attempt, kind))
        if series is None:
            series = found[key] = _Series(most)
        series.add((number, json.loads(value) if isinstance(value, str) else value, step, at))
    return [series.view(*key) for key, series in found.items()]


def thin(values: Sequence[Json], most: int) -> list[int]:
    """Which values to keep: the first, the last, and of each stretch the least, the greatest and one that is no number.

    So no peak gets lost, nor a step at which a loss was not a number.
    """
    if len(values) <= most:
        return list(range(len(values)))
    numbers = [_number(value) for value in values]
    stretches = max(1, (most - 2) // (3 if None in numbers else 2))
    kept = {0, len(values) - 1}
    for stretch in range(stretches):
        part = range(len(values) * stretch // stretches, len(values) * (stretch + 1) // stretches)
        finite = [index for index in part if numbers[index] is not None]
        if finite:
            kept.update((min(finite, key=numbers.__getitem__), max(finite, key=numbers.__getitem__)))  # type: ignore[arg-type]
        if len(finite) < len(part):
            kept.add(next(index for index in part if numbers[index] is None))
    return sorted(kept)


_Point = tuple[int, Json, float | None, float]


@dataclass
class _Series:
    """Points of one series as they are read, never many more than are wanted."""

    most: int | None
    points: list[_Point] = field(default_factory=list)
    count: int = 0

    def add(self, point: _Point) -> None:
        self.points.append(point)
        self.count += 1
        if self.most is not None and len(self.points) >= _BUFFERED * self.most:
            self._thin(self.most * 10)

    def view(self, name: str, source: str, attempt: int, kind: str) -> MetricSeries:
        if self.most is not None:
            self._thin(self.most)
        order, values, steps, at = zip(*self.points, strict=True)
        least, greatest = _extremes(values)
        return MetricSeries(
            name, source, rank_of(source), attempt, kind, self.count, least, greatest, values, steps, at, order
        )

    def _thin(self, most: int) -> None:
        self.points = [self.points[index] for index in thin([point[1] for point in self.points], most)]


def _extremes(values: Iterable[Json]) -> tuple[float | None, float | None]:
    numbers = [number for value in values if (number := _number(value)) is not None]
    return min(numbers, default=None), max(numbers, default=None)


def _number(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _undecoded(connection: Connection) -> ColumnElement[Any]:
    """Values as the database keeps them: what its JSON type does with each takes as long as all the rest.

    SQLite keeps a number as such, and as text would cut it to 15 digits.
    """
    if connection.dialect.name == "sqlite":
        return type_coerce(_METRICS.c.value, NullType())
    return cast(_METRICS.c.value, Text)


def _query(connection: Connection, ref: str, name: str | None, value: ColumnElement[Any]) -> Any:
    columns = _METRICS.c["id", "name", "source", "attempt", "type", "step", "at"]
    query = select(*columns, value).where(_METRICS.c.run_id == find_run(connection, ref).id).order_by(_METRICS.c.id)
    return query if name is None else query.where(_METRICS.c.name == name)
