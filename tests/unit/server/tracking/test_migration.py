"""Metrics of a database from before there were blocks are all there afterwards, under the same cursors."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from muster.server.database import tables
from muster.server.database.connection import Database, connect
from muster.server.tracking.reading import points_after, read_series, series_rows
from muster.server.tracking.recording import add_points
from muster.wire.runs import MetricPoint

MORE = MetricPoint("loss", 1e9, 9000, 0, "rank_0", "scalar", 0.0, 1)
FIRST_SCHEMA = Path(__file__).parents[1] / "database" / "first_schema.sql"


def old_database(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(FIRST_SCHEMA.read_text())


def test_old_points_keep_their_values_and_their_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/muster.db"
    old_database(tmp_path / "muster.db")
    engine = connect(url)
    table = sa.table(
        "metrics", *(sa.column(name) for name in ("run_id", "attempt", "source", "name", "type", "step", "at")),
        sa.column("value", sa.JSON),
    )  # fmt: skip
    chosen = random.Random(1)
    rows = [
        {
            "run_id": f"r-{chosen.randrange(2)}", "attempt": 1, "source": f"rank_{number % 2}", "name": "loss",
            "type": "scalar", "step": number, "at": float(number), "value": chosen.choice([number, number / 3, "NaN"]),
        }
        for number in range(9000)
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
    engine.dispose()
    database = Database(url)
    try:
        for run_id in ("r-0", "r-1"):
            mine = [(row["value"], row["step"], row["source"]) for row in rows if row["run_id"] == run_id]
            found = database.read_now(lambda c, run=run_id: points_after(c, run, 0, None))  # type: ignore[misc]
            assert [(point.value, point.step, point.source) for _, point in found] == mine
            database.submit(lambda t, run=run_id: add_points(t, run, [MORE] * 5000)).result()  # type: ignore[misc]
            series = database.read_now(lambda c, run=run_id: read_series(c, run, series_rows(c, run), 100))  # type: ignore[misc]
            assert [row.num_points for row, _ in series] == [
                sum(1 for item in mine if item[2] == row.source) + (5000 if row.source == "rank_0" else 0)
                for row, _ in series
            ]
            assert all(points.orders == sorted(points.orders) for _, points in series)
            assert series[0][1].values[-1] == 1e9 or series[1][1].values[-1] == 1e9
        assert "metrics" not in database.read_now(lambda c: sa.inspect(c).get_table_names())
        assert database.read_now(
            lambda c: c.execute(sa.select(tables.metric_blocks.c.tier).where(tables.metric_blocks.c.tier > 0)).all()
        )
    finally:
        database.close()
