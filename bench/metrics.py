"""Metrics: storing and reading 100 series of 10,000 points, against one row per point, as it was done before."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from bench.measure import Figure, interleave, median, quick, report
from muster.host.points import pack, unpack
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.runs.logged import read_line
from muster.server.tracking.reading import load_series
from muster.server.tracking.recording import add_points
from muster.wire.codec import from_json
from muster.wire.runs import MetricPoint, MetricSeries

ROWS = sa.Table(
    "bench_rows", sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *(sa.Column(name, sa.String(255), nullable=False) for name in ("run_id", "source", "name", "type")),
    sa.Column("attempt", sa.Integer, nullable=False), sa.Column("value", sa.JSON, nullable=False),
    sa.Column("step", sa.Float), sa.Column("at", sa.Float, nullable=False),
    sa.Index("bench_rows_run", "run_id", "id"),
)  # fmt: skip
Write = Callable[[Transaction, str, Sequence[MetricPoint]], None]
SERIES, CHART_POINTS = 100, 1000
RUN = {
    "experiment": "e", "status": "Completed", "created_at": 0.0, "spec": {}, "compute": "c", "priority": 0,
    "num_nodes": 1, "num_ranks": 1, "ranks_per_node": 1, "attempt": 1, "tags": {}, "notices": [],
}  # fmt: skip


def main() -> None:
    is_quick = quick(__doc__)
    steps, rounds = (1000, 2) if is_quick else (10_000, 5)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        database = Database(f"sqlite:///{Path(folder)}/muster.db")
        try:
            figures = [*taking_in(database, is_quick), *reading(database, steps, rounds)]
        finally:
            database.close()
    report("metrics", figures, is_quick)


def taking_in(database: Database, is_quick: bool) -> list[Figure]:
    """Deliveries as they come: one step of 100 metrics, and 1,000 steps of one."""
    database.submit(lambda t: ROWS.create(t.connection)).result()
    found: list[Figure] = []
    for what, names, per_delivery, deliveries in (("wide", SERIES, 1, 100), ("long", 1, 1000, 20)):
        count = deliveries // 4 if is_quick else deliveries
        batches = [points(names, number * per_delivery, per_delivery) for number in range(count)]
        samples = interleave(
            2 if is_quick else 5,
            {
                "rows": lambda batches=batches: timed(database, batches, as_rows),  # type: ignore[misc]
                "blocks": lambda batches=batches: timed(database, batches, as_blocks),  # type: ignore[misc]
            },
        )
        each = 1e3 / count
        rows, blocks = (statistics.median(samples[way]) for way in ("rows", "blocks"))
        shape = f"{names} x {per_delivery}"
        found += [
            median(f"{what} delivery ({shape}), a row each", [sample * each for sample in samples["rows"]], "ms"),
            median(f"{what} delivery ({shape}), blocks", [sample * each for sample in samples["blocks"]], "ms"),
            Figure(f"{what} delivery, times a row each", blocks / rows, "times", at_most=1.0),
        ]
    return found


def reading(database: Database, steps: int, rounds: int) -> list[Figure]:
    """A chart of every metric of a run, and each of its points, to the objects that a client gets."""
    database.submit(lambda t: t.execute(sa.insert(tables.runs), {**RUN, "id": "read", "key": "read"})).result()
    for begin in range(0, steps, 100):
        batch = points(SERIES, begin, 100)
        for write in (as_rows, as_blocks):
            database.submit(partial(write, run_id="read", batch=batch)).result()
    samples = interleave(
        rounds,
        {
            "rows": lambda: read_rows(database),
            "chart": lambda: read_blocks(database, CHART_POINTS),
            "small chart": lambda: read_blocks(database, 200),
            "full": lambda: read_blocks(database, None),
        },
    )
    rows = statistics.median(samples["rows"])
    what = f"{SERIES} x {steps:,} points"
    return [
        median(f"{what} from a row each", samples["rows"], "s"),
        median(f"{what}, all of them", samples["full"], "s"),
        median(f"{what}, as charts of {CHART_POINTS:,}", samples["chart"], "s", at_most=0.5),
        median(f"{what}, as charts of 200", samples["small chart"], "s"),
        Figure("rows, times charts", rows / statistics.median(samples["chart"]), "times", at_least=10),
        Figure("rows, times all points from blocks", rows / statistics.median(samples["full"]), "times"),
    ]


def points(names: int, begin: int, steps: int) -> list[MetricPoint]:
    return [
        MetricPoint(f"metric_{name}", 1.0 / (step + name + 1), step, 0, "rank_0", "scalar", 1.7e9 + step / 7, 1)
        for step in range(begin, begin + steps)
        for name in range(names)
    ]


def timed(database: Database, batches: Sequence[Sequence[MetricPoint]], write: Write) -> float:
    run_id = f"run-{time.monotonic_ns()}"
    logged = [[line_of(point) for point in batch] for batch in batches]
    began = time.perf_counter()
    for lines in logged:
        database.submit(lambda t, lines=lines: write(t, run_id, taken_in(lines))).result()  # type: ignore[misc]
    return time.perf_counter() - began


def line_of(point: MetricPoint) -> bytes:
    """As a rank writes it."""
    names = ("name", "type", "value", "step", "at")
    return json.dumps({"kind": "metric", **{name: getattr(point, name) for name in names}}).encode()


def taken_in(lines: Sequence[bytes]) -> list[MetricPoint]:
    found = [read_line(line, 1, "rank_0") for line in lines]
    return [point for point in found if isinstance(point, MetricPoint)]


def as_rows(transaction: Transaction, run_id: str, batch: Sequence[MetricPoint]) -> None:
    names = ("attempt", "source", "name", "type", "value", "step", "at")
    rows = [{"run_id": run_id, **{name: getattr(point, name) for name in names}} for point in batch]
    transaction.execute(sa.insert(ROWS), rows)


def as_blocks(transaction: Transaction, run_id: str, batch: Sequence[MetricPoint]) -> None:
    add_points(transaction, run_id, batch)


def read_rows(database: Database) -> float:
    """Read in the earlier way: every row, each appended to its series."""
    began = time.perf_counter()
    found: dict[tuple[str, str], list[tuple[float, float, float, int]]] = {}
    value = sa.type_coerce(ROWS.c.value, sa.types.NullType())
    columns = (ROWS.c.id, ROWS.c.name, ROWS.c.source, ROWS.c.step, ROWS.c.at, value)
    query = sa.select(*columns).where(ROWS.c.run_id == "read").order_by(ROWS.c.id)
    rows = database.read_now(lambda c: c.execute(query).all())
    for number, name, source, step, at, figure in map(tuple, rows):
        found.setdefault((name, source), []).append((figure, step, at, number))
    series = [
        MetricSeries(name, source, 0, 1, "scalar", len(items), None, None, *map(tuple, zip(*items, strict=True)))
        for (name, source), items in found.items()
    ]
    return decoded(series, began)


def read_blocks(database: Database, most: int | None) -> float:
    began = time.perf_counter()
    return unpacked(database.read_now(lambda c: load_series(c, "read", None, most)), began)


def unpacked(series: Sequence[MetricSeries], began: float) -> float:
    if len(unpack(pack(series))) != SERIES:
        raise SystemExit("not every series was read")
    return time.perf_counter() - began


def decoded(series: Sequence[MetricSeries], began: float) -> float:
    sent = json.dumps([vars(item) for item in series]).encode()
    if len(from_json(list[MetricSeries], json.loads(sent))) != SERIES:
        raise SystemExit("not every series was read")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
