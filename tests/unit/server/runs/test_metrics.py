"""Metrics that are thinned out: what stands out stays, and who wants every point gets it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert
from tests.unit.server.conftest import Server
from tests.unit.server.http.test_paging import add_runs, pages

from muster.server.database import tables
from muster.server.runs import metrics
from muster.server.runs.metrics import thin

VALUES = st.lists(st.floats(allow_nan=False) | st.just("NaN"), min_size=1, max_size=300)


@given(VALUES, st.integers(10, 100))
def test_the_extremes_the_ends_and_what_is_no_number_stay(values: list[Any], most: int) -> None:
    kept = thin(values, most)
    assert kept == sorted(set(kept)) and len(kept) <= max(most, 5)
    assert {0, len(values) - 1} <= set(kept)
    numbers = [value for value in values if value != "NaN"]
    chosen = [values[index] for index in kept]
    if numbers:
        assert {min(numbers), max(numbers)} <= {value for value in chosen if value != "NaN"}
    assert ("NaN" in chosen) == ("NaN" in values)


def log(server: Server, count: int) -> None:
    add_runs(server, range(1))
    row = {"run_id": "r-0", "attempt": 1, "type": "scalar", "at": 1.0}
    rows = [
        {**row, "name": "loss", "source": f"rank_{number % 2}", "value": 1.0 / (number + 1), "step": number // 2}
        for number in range(count)
    ]
    rows[count // 2]["value"] = 99.0
    server.write(lambda transaction: transaction.execute(insert(tables.metrics), rows))


def test_a_long_series_is_thinned_out_unless_all_of_it_is_wanted(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(metrics, "_BUFFERED", 20)
    log(server, 3000)
    _, thinned = server.call("GET", "/runs/r-0/metrics/series?points=50")
    assert [(series["rank"], series["count"]) for series in thinned] == [(0, 1500), (1, 1500)]
    assert all(10 < len(series["values"]) <= 50 for series in thinned)
    assert thinned[0]["greatest"] == 99.0 and 99.0 in thinned[0]["values"]
    assert [series["steps"][-1] for series in thinned] == [1499, 1499]
    _, full = server.call("GET", "/runs/r-0/metrics/series?full=1&name=loss")
    assert [len(series[column]) for series in full for column in ("values", "steps", "at", "order")] == [1500] * 8
    assert full[0]["values"][1:3] == [1 / 3, 1 / 5], "no digit is lost"
    assert server.call("GET", "/runs/r-0/metrics/series?name=none") == (200, [])
    assert server.call("GET", "/runs/r-0/metrics/series?points=1")[0] == 422


def test_points_come_in_pages(server: Server) -> None:
    log(server, 25)
    found = pages(server, "/runs/r-0/metrics?limit=10")
    assert [len(page) for page in found] == [10, 10, 5]
    assert [point["step"] for page in found for point in page] == [number // 2 for number in range(25)]
