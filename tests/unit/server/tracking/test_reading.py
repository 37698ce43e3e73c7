"""Metrics that are thinned out: what stands out stays, and who wants every point gets it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from tests.unit.server.conftest import Server
from tests.unit.server.http.test_paging import add_runs, pages

from muster.server.database import tables
from muster.server.tracking import recording
from muster.server.tracking.reading import last_values, points_after
from muster.server.tracking.recording import add_points
from muster.server.tracking.thinning import stand_outs, thin
from muster.wire.runs import MetricPoint

VALUES = st.lists(st.floats(allow_nan=False) | st.just("NaN"), min_size=1, max_size=300)


@given(VALUES, st.integers(10, 100))
def test_the_extremes_the_ends_and_what_is_no_number_stay(values: list[Any], most: int) -> None:
    kept = thin(values, most)
    assert kept == sorted(set(kept)) and len(kept) <= max(most, 5)
    assert {0, len(values) - 1} <= set(kept)
    assert_stands_out(values, kept)


@given(VALUES, st.integers(2, 40))
def test_a_tier_keeps_the_extremes_of_every_stretch(values: list[Any], stretch: int) -> None:
    kept = stand_outs(values, stretch)
    for begin in range(0, len(values), stretch):
        part = values[begin : begin + stretch]
        assert_stands_out(part, [index - begin for index in kept if begin <= index < begin + stretch])


def assert_stands_out(values: list[Any], kept: list[int]) -> None:
    numbers = [value for value in values if value != "NaN"]
    chosen = [values[index] for index in kept]
    if numbers:
        assert {min(numbers), max(numbers)} <= {value for value in chosen if value != "NaN"}
    assert ("NaN" in chosen) == ("NaN" in values)


def point(name: str, value: Any, step: float | None = None, rank: int = 0, attempt: int = 1) -> MetricPoint:
    return MetricPoint(name, value, step, rank, f"rank_{rank}", "scalar", 1.0, attempt)


def log(server: Server, points: list[MetricPoint], per_delivery: int = 500, run: str = "r-0") -> None:
    for begin in range(0, len(points), per_delivery):
        some = points[begin : begin + per_delivery]
        server.write(partial(add_points, run_id=run, points=some))


def two_ranks(count: int) -> list[MetricPoint]:
    points = [point("loss", 1.0 / (number + 1), number // 2, number % 2) for number in range(count)]
    points[count // 2] = point("loss", 99.0, count // 4, (count // 2) % 2)
    return points


@pytest.mark.parametrize("per_delivery", [1500, 6, 10_000])
def test_a_long_series_is_thinned_out_unless_all_of_it_is_wanted(server: Server, per_delivery: int) -> None:
    add_runs(server, range(1))
    log(server, two_ranks(6000), per_delivery)
    _, thinned = server.call("GET", "/runs/r-0/metrics/series?points=50")
    assert [(series["rank"], series["count"]) for series in thinned] == [(0, 3000), (1, 3000)]
    assert all(10 < len(series["values"]) <= 50 for series in thinned)
    assert thinned[0]["greatest"] == 99.0 and 99.0 in thinned[0]["values"]
    assert [(series["steps"][0], series["steps"][-1]) for series in thinned] == [(0, 2999), (0, 2999)]
    _, full = server.call("GET", "/runs/r-0/metrics/series?full=1&name=loss")
    assert [len(series[column]) for series in full for column in ("values", "steps", "at", "order")] == [3000] * 8
    assert full[0]["values"][1:3] == [1 / 3, 1 / 5], "no digit is lost"
    assert [series["steps"] for series in full] == [[*range(3000)]] * 2
    assert server.call("GET", "/runs/r-0/metrics/series?name=none") == (200, [])
    assert server.call("GET", "/runs/r-0/metrics/series?points=1")[0] == 422


def test_a_peak_is_in_every_tier(server: Server) -> None:
    add_runs(server, range(1))
    values = [float(number % 7) for number in range(40_000)]
    values[12_345], values[30_001] = 1000.0, -1000.0
    log(server, [point("m", value, number) for number, value in enumerate(values)], 3000)
    tiers = server.context.database.read_now(
        lambda c: c.execute(
            select(tables.metric_blocks.c.tier, func.sum(tables.metric_blocks.c.count)).group_by("tier")
        ).all()
    )
    assert [tier for tier, _ in tiers] == [0, 1, 2, 3] and tiers[3][1] < 100
    for most in (10, 200, 3000, 20_000):
        _, (series,) = server.call("GET", f"/runs/r-0/metrics/series?points={most}")
        assert {1000.0, -1000.0} <= set(series["values"]) and len(series["values"]) <= most
        assert series["steps"] == sorted(series["steps"]) and series["steps"][-1] == 39_999


ANY_VALUE = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "text", None, True]),
    st.lists(st.integers(), max_size=2),
)
ANY_POINT = st.tuples(st.sampled_from("ab"), ANY_VALUE, st.none() | st.integers(0, 10**9), st.integers(0, 1))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.lists(ANY_POINT, min_size=1, max_size=30), max_size=8), st.integers(1, 8))
def test_whatever_is_logged_is_read_as_it_was(server: Server, deliveries: list[Any], rows: int) -> None:
    run = f"r-{len(deliveries)}-{rows}"
    server.write(lambda t: [t.execute(table.delete()) for table in METRIC_TABLES])
    recording._TAIL_ROWS, kept = rows, recording._TAIL_ROWS
    try:
        for items in deliveries:
            log(server, [point(name, value, step, rank) for name, value, step, rank in items], 1000, run)
    finally:
        recording._TAIL_ROWS = kept
    found = server.context.database.read_now(lambda c: points_after(c, run, 0, None))
    logged = [item for items in deliveries for item in items]
    assert [(item.name, item.value, item.step, item.rank) for _, item in found] == logged
    assert [type(item.value) for _, item in found] == [type(item[1]) for item in logged]
    last = server.context.database.read_now(lambda c: last_values(c, [run])).get(run, {})
    assert last == {name: value for name, value, _, _ in logged}


METRIC_TABLES = (tables.metric_series, tables.metric_blocks, tables.metric_tails, tables.metric_counts)


def test_points_come_in_pages(server: Server) -> None:
    add_runs(server, range(1))
    log(server, two_ranks(25))
    found = pages(server, "/runs/r-0/metrics?limit=10")
    assert [len(page) for page in found] == [10, 10, 5]
    assert [point["step"] for page in found for point in page] == [number // 2 for number in range(25)]


def test_a_summary_says_where_a_series_began_ended_and_was_best(server: Server) -> None:
    add_runs(server, range(1))
    losses, accuracies = [5.0, 2.0, "NaN", 3.0], [0.1, 0.9, 0.5, 0.6]
    for step, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True)):
        log(server, [point("val/loss", loss, step), point("accuracy", accuracy, step)])
    _, (loss, accuracy) = server.call("GET", "/runs/r-0/metrics/summaries")
    assert [loss[key] for key in ("count", "last", "best", "best_step", "greatest")] == [4, 3.0, 2.0, 1.0, 5.0]
    assert [loss[key] for key in ("first_step", "last_step", "rank", "attempt")] == [0.0, 3.0, 0, 1]
    assert [accuracy[key] for key in ("best", "best_step", "least")] == [0.9, 1.0, 0.1]


def test_runs_are_listed_in_the_order_of_a_metric_page_by_page(server: Server) -> None:
    add_runs(server, range(8))
    logged: list[list[Any]] = [[3, 1], [9, 4], [2, 2], [7, 0.5], ["NaN"], [2, 8]]
    for number, values in enumerate(logged):
        log(server, [point("loss", value, step) for step, value in enumerate(values)], run=f"r-{number}")
    found = pages(server, "/summaries?metric=loss&limit=3")
    assert [run["id"] for page in found for run in page] == ["r-3", "r-0", "r-5", "r-2", "r-1", "r-7", "r-6", "r-4"]
    assert found[0][0]["metrics"]["loss"] == {
        "last": 0.5, "best": 0.5, "least": 0.5, "greatest": 7.0, "count": 2, "last_step": 1.0, "last_at": 1.0,
    }  # fmt: skip
    found = pages(server, "/summaries?metric=loss&by=last&ascending=false&limit=2")
    assert [run["id"] for page in found for run in page] == ["r-5", "r-1", "r-2", "r-0", "r-3", "r-7", "r-6", "r-4"]
    _, chosen = server.call("GET", "/summaries?run=r-1&run=r-2&name=none")
    assert [(run["id"], run["metrics"]) for run in chosen] == [("r-2", {}), ("r-1", {})]


def test_ranks_and_attempts_are_one_metric_of_the_run(server: Server) -> None:
    add_runs(server, range(1))
    log(server, [point("loss", 1.0, 0, 0), point("loss", 8.0, 0, 1), point("loss", 0.5, 0, 0, 2)])
    _, (run,) = server.call("GET", "/summaries")
    assert [run["metrics"]["loss"][key] for key in ("last", "least", "greatest", "count")] == [0.5, 0.5, 8.0, 3]
