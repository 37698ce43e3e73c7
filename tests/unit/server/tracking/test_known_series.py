"""Summaries that are remembered between deliveries agree with what the database holds, whatever was rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from muster.server.database import tables
from muster.server.database.connection import Database
from muster.server.database.writer import Transaction
from muster.server.tracking import known_series
from muster.server.tracking.known_series import KnownRun, KnownSeries, KnownSource
from muster.server.tracking.recording import add_points
from muster.server.tracking.summaries import Summary
from muster.wire.runs import MetricPoint


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/muster.db")
    yield made
    made.close()


def points(names: int, step: int, source: str = "rank_0") -> list[MetricPoint]:
    return [
        MetricPoint(f"m{name}", float(step - name), step, 0, source, "scalar", 1.0 * step, 1) for name in range(names)
    ]


def series(database: Database, run_id: str) -> list[dict[str, Any]]:
    table = tables.metric_series
    query = select(table).where(table.c.run_id == run_id).order_by(table.c.source, table.c.name)
    return [{**row._mapping, "run_id": ""} for row in database.read_now(lambda c: c.execute(query).all())]


def test_what_was_rolled_back_leaves_no_trace(database: Database) -> None:
    def fails(transaction: Transaction) -> None:
        add_points(transaction, "disturbed", points(3, 999))
        raise RuntimeError("no room")

    for step in range(150):
        database.submit(lambda t, step=step: add_points(t, "disturbed", points(3, step))).result()  # type: ignore[misc]
        with pytest.raises(RuntimeError):
            database.submit(fails).result()
        database.submit(lambda t, step=step: add_points(t, "quiet", points(3, step))).result()  # type: ignore[misc]
    assert series(database, "disturbed") == series(database, "quiet")


def test_series_that_a_delivery_leaves_out_are_brought_to_blocks_once(database: Database) -> None:
    """Their points lie in the same tails; how many are stored must be remembered, too."""
    for step in range(400):
        batch = points(3 if step % 7 == 0 else 1, step) + points(1, step, "rank_1")
        database.submit(lambda t, batch=batch: add_points(t, "run", batch)).result()  # type: ignore[misc]
    found = {(row["source"], row["name"]): row for row in series(database, "run")}
    assert [found["rank_0", name]["num_points"] for name in ("m0", "m1")] == [400, 58]
    blocks = tables.metric_blocks
    query = select(blocks.c.series, blocks.c.count).where(blocks.c.tier == 0)
    held: dict[int, int] = {}
    for number, count in database.read_now(lambda c: c.execute(query).all()):
        held[number] = held.get(number, 0) + count
    assert {row["number"]: row["stored"] for row in found.values()} == held


def test_what_does_not_agree_with_the_count_is_forgotten_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_series, "_MOST_SERIES", 2)
    known = KnownSeries()
    for name in ("a", "b", "c"):
        known.put(name, KnownRun(7, {(1, "rank_0"): KnownSource({("loss", "scalar"): Summary(0)})}))
    assert known.take("a", 7).sources == {}
    assert known.take("b", 6).sources == {}
    assert known.take("c", 7).num_series == 1
