"""Writes metrics: a delivery is one row and the summaries that it changes; many together become blocks and tiers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import Dialect, Insert, Select, Update, bindparam, delete, func, insert, select, update

from muster.host.points import Points
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.json_text import write_json
from muster.server.tracking.block_rows import BlockRows
from muster.server.tracking.known_series import KnownSeries, KnownSource, Summaries
from muster.server.tracking.summaries import Summary
from muster.wire.codec import Json
from muster.wire.runs import MetricPoint

_SERIES, _TAILS, _COUNTS = tables.metric_series, tables.metric_tails, tables.metric_counts
_TAIL_ROWS, _TAIL_POINTS = 64, 8192
"""Above either of these, a source's tails are moved to blocks."""
_AT_ONCE = 256
"""With so many points per series, a delivery goes to blocks directly, without a tail."""
_NAMES_PER_QUERY = 500
_ALL_SERIES = 4
"""Where a delivery has one in so many series of its run, or more, all series of its source are looked at."""

_KNOWN = tuple(name for name in Summary.__dataclass_fields__ if name not in ("last", "last_number"))
_CHANGED = (
    "last",
    *(name for name in Summary.__dataclass_fields__ if name not in ("last", "number", "first_step", "first_at")),
)
_NEW_VALUES = attrgetter(*_CHANGED)
_ADD_SERIES = insert(_SERIES)
_ADD_TAIL = insert(_TAILS)
_CHANGE_SERIES = (
    update(_SERIES)
    .where(_SERIES.c.run_id == bindparam("key_run"), _SERIES.c.number == bindparam("key_number"))
    .ordered_values(*((_SERIES.c[name], bindparam(f"new_{name}")) for name in _CHANGED))
)
_SERIES_OF_SOURCE = select(_SERIES.c.name, _SERIES.c.type, *(_SERIES.c[name] for name in _KNOWN)).where(
    _SERIES.c.run_id == bindparam("run"),
    _SERIES.c.attempt == bindparam("attempt"),
    _SERIES.c.source == bindparam("source"),
)
_COUNT_OF_RUN = select(_COUNTS.c.last_order, _COUNTS.c.num_series).where(_COUNTS.c.run_id == bindparam("run"))
_ADD_COUNT = insert(_COUNTS)
_CHANGE_COUNT = (
    update(_COUNTS)
    .where(_COUNTS.c.run_id == bindparam("key_run"))
    .ordered_values((_COUNTS.c.last_order, bindparam("new_order")), (_COUNTS.c.num_series, bindparam("new_series")))
)
_OF_SOURCE = (
    _TAILS.c.run_id == bindparam("run"),
    _TAILS.c.attempt == bindparam("attempt"),
    _TAILS.c.source == bindparam("source"),
)
_TAIL_SIZE = select(func.count(), func.coalesce(func.sum(_TAILS.c.count), 0)).where(*_OF_SOURCE)
_TAIL_OF_SOURCE = select(_TAILS.c.points).where(*_OF_SOURCE).order_by(_TAILS.c.first_order)
_EMPTY_TAIL = delete(_TAILS).where(*_OF_SOURCE)

TailPoint = list[Json]
"""A point in a tail: the number of its series, its order, value, step and time."""


@dataclass(frozen=True)
class Source:
    """The source of metrics: a rank, a node or a client, in one attempt of a run."""

    run_id: str
    attempt: int
    name: str

    @property
    def key(self) -> Mapping[str, Json]:
        return {"run": self.run_id, "attempt": self.attempt, "source": self.name}


@dataclass
class Batch:
    """What a delivery adds to the series of one source."""

    summaries: dict[tuple[str, str], Summary]
    """By name and type."""
    new: list[tuple[str, str]]
    rows: list[TailPoint]
    """In order of arrival."""
    known: Summaries
    """Cached summaries of all series of the source."""


def add_points(transaction: Transaction, run_id: str, points: Sequence[MetricPoint]) -> None:
    """Record points of metrics, in the order in which they are given."""
    if not points:
        return
    count = _driver_statement(transaction.connection.dialect, _COUNT_OF_RUN)
    last_order, num_series = transaction.connection.exec_driver_sql(count, (run_id,)).first() or (0, 0)
    series = transaction.memory.setdefault(KnownSeries, KnownSeries())
    assert isinstance(series, KnownSeries)
    known = series.take(run_id, last_order)
    by_source: dict[tuple[int, str], list[tuple[int, MetricPoint]]] = defaultdict(list)
    for order, point in enumerate(points, last_order + 1):
        by_source[point.attempt, point.source].append((order, point))
    for (attempt, name), found in by_source.items():
        source = Source(run_id, attempt, name[:255])
        held = known.sources.setdefault((attempt, source.name), KnownSource())
        num_series += _add(transaction, source, found, num_series, held)
    known.last_order = last_order + len(points)
    transaction.after_commit.append(lambda: series.put(run_id, known))
    if last_order:
        _drive(transaction, _CHANGE_COUNT, [(last_order + len(points), num_series, run_id)])
    else:
        _drive(transaction, _ADD_COUNT, [(run_id, len(points), num_series)])


def _add(
    transaction: Transaction,
    source: Source,
    points: Sequence[tuple[int, MetricPoint]],
    num_series: int,
    known: KnownSource,
) -> int:
    """Record what one source logged; returns how many series are new."""
    batch = _make_batch(transaction, source, points, num_series, known.summaries)
    rows, waiting = known.tail or transaction.execute(_TAIL_SIZE, source.key).one()
    is_long = len(points) >= _AT_ONCE * len(batch.summaries)
    if is_long or rows >= _TAIL_ROWS or waiting + len(points) >= _TAIL_POINTS:
        _move_to_blocks(transaction, source, batch)
        known.tail = (0, 0)
    else:
        row = (source.run_id, source.attempt, source.name, points[0][0], points[-1][0], len(points))
        _drive(transaction, _ADD_TAIL, [(*row, write_json(batch.rows))])
        known.tail = (rows + 1, waiting + len(points))
    _keep_summaries(transaction, source, batch)
    return len(batch.new)


def _make_batch(
    transaction: Transaction,
    source: Source,
    points: Sequence[tuple[int, MetricPoint]],
    num_series: int,
    known: Summaries,
) -> Batch:
    keys = [(point.name[:255], point.type[:16]) for _, point in points]
    missing = {key for key in keys if key not in known}
    if missing and num_series:
        known.update(_load_summaries(transaction, source, missing, num_series))
    # In order of arrival, by the series' number.
    new = [key for key in dict.fromkeys(keys) if key not in known] if missing else []
    for index, key in enumerate(new, num_series):
        known[key] = Summary(index)
    summaries: dict[tuple[str, str], Summary] = {}
    rows: list[TailPoint] = []
    for key, (order, point) in zip(keys, points, strict=True):
        summaries[key] = summary = known[key]
        value, step, at = point.value, point.step, point.at
        rows.append([summary.number, order, value, step, at])
        summary.take_in_point(order, value, step, at)
    return Batch(summaries, new, rows, known)


def _load_summaries(
    transaction: Transaction, source: Source, keys: Collection[tuple[str, str]], num_series: int
) -> dict[tuple[str, str], Summary]:
    """The recorded summaries of some series, without their last points, since more follow now."""
    if len(keys) * _ALL_SERIES >= num_series:
        rows = transaction.execute(_SERIES_OF_SOURCE, source.key).all()
    else:
        names = list(dict.fromkeys(name for name, _ in keys))
        parts = [names[begin : begin + _NAMES_PER_QUERY] for begin in range(0, len(names), _NAMES_PER_QUERY)]
        queries = [_SERIES_OF_SOURCE.where(_SERIES.c.name.in_(part)) for part in parts]
        rows = [row for query in queries for row in transaction.execute(query, source.key)]
    return {(row[0], row[1]): _summary(row[2:]) for row in rows if (row[0], row[1]) in keys}


def _summary(known: Sequence[Any]) -> Summary:
    made = Summary.__new__(Summary)
    made.__dict__.update(zip(_KNOWN, known, strict=True), last=None, last_number=None)
    return made


def _keep_summaries(transaction: Transaction, source: Source, batch: Batch) -> None:
    new = set(batch.new)
    if new:
        owner = {"run_id": source.run_id, "attempt": source.attempt, "source": source.name}
        transaction.execute(
            _ADD_SERIES, [{**owner, "name": key[0], "type": key[1], **vars(batch.summaries[key])} for key in batch.new]
        )
    changed = [summary for key, summary in batch.summaries.items() if key not in new]
    if changed:
        _change(transaction, source.run_id, changed)


def _change(transaction: Transaction, run_id: str, changed: Sequence[Summary]) -> None:
    rows = [(_json(item.last), *_NEW_VALUES(item)[1:], run_id, item.number) for item in changed]
    _drive(transaction, _CHANGE_SERIES, rows)


def _drive(transaction: Transaction, statement: Insert | Update, rows: Sequence[tuple[Any, ...]]) -> None:
    """Execute on the driver: SQLAlchemy's work per row would take longer than everything else."""
    connection = transaction.connection
    connection.exec_driver_sql(_driver_statement(connection.dialect, statement), list(rows))


def _json(value: Json) -> str:
    # The encoder's result for a number, without calling it.
    return repr(value) if type(value) is float else write_json(value)


@cache
def _driver_statement(dialect: Dialect, statement: Insert | Update | Select[Any]) -> str:
    """A statement with its values in the order in which they are written here."""
    made = dialect.statement_compiler(dialect, statement)
    text = str(made)
    for name in made.params:
        text = text.replace(f"%({name})s", "%s")
    return text


# Blocks


def _move_to_blocks(transaction: Transaction, source: Source, batch: Batch) -> None:
    """Move a source's tails and new points to the ends of its series' blocks."""
    waiting = _by_series([*transaction.execute(_TAIL_OF_SOURCE, source.key).scalars(), batch.rows])
    summaries = {summary.number: summary for summary in batch.summaries.values()}
    absent = [number for number in waiting if number not in summaries]
    others = {summary.number: summary for summary in batch.known.values() if summary.number not in summaries}
    stored = {number: summary.stored for number, summary in (summaries | others).items()}
    stored |= _stored(transaction, source, [number for number in absent if number not in others])
    blocks = BlockRows(transaction, source.run_id)
    blocks.load_open({number: stored[number] for number in waiting})
    for number, points in waiting.items():
        blocks.append(number, stored[number], points)
        if held := summaries.get(number) or others.get(number):
            held.stored += len(points)
    blocks.write()
    if absent:
        grown = [{"key_run": source.run_id, "key_number": n, "more": len(waiting[n])} for n in absent]
        transaction.execute(_GROW_STORED, grown)
    transaction.execute(_EMPTY_TAIL, source.key)


def _by_series(parts: Iterable[Sequence[TailPoint]]) -> dict[int, Points]:
    found: dict[int, list[TailPoint]] = defaultdict(list)
    for rows in parts:
        for row in rows:
            found[row[0]].append(row)  # type: ignore[index]
    columns = {number: [*zip(*rows, strict=True)] for number, rows in found.items()}
    return {number: Points(*map(list, others)) for number, (_, *others) in columns.items()}


_GROW_STORED = (
    update(_SERIES)
    .where(_SERIES.c.run_id == bindparam("key_run"), _SERIES.c.number == bindparam("key_number"))
    .values(stored=_SERIES.c.stored + bindparam("more"))
)


def _stored(transaction: Transaction, source: Source, numbers: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for begin in range(0, len(numbers), _NAMES_PER_QUERY):
        some = numbers[begin : begin + _NAMES_PER_QUERY]
        query = select(_SERIES.c.number, _SERIES.c.stored).where(
            _SERIES.c.run_id == source.run_id, _SERIES.c.number.in_(some)
        )
        found.update((number, stored) for number, stored in transaction.execute(query))
    return found


def tail_points(rows: Iterable[Sequence[TailPoint]]) -> Iterator[tuple[int, int, Json, float | None, float]]:
    """The points of tails, each with the number of its series."""
    for points in rows:
        yield from points  # type: ignore[misc]
