"""What a notebook shows of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from muster.sdk.notebook import charts
from muster.wire.runs import MetricSeries


def series(values: list[Any], name: str = "loss", rank: int | None = 0, attempt: int = 1) -> MetricSeries:
    count = len(values)
    at = tuple(float(index) for index in range(count))
    steps = tuple(range(10 * (attempt - 1), 10 * (attempt - 1) + count))
    return MetricSeries(
        name, f"rank_{rank}", rank, attempt, "scalar", count, None, None, tuple(values), steps, at, tuple(range(count))
    )


def lines(drawn: str) -> list[list[tuple[float, float]]]:
    """The curves, as their points on the page; the drawings are well-formed."""
    root = ElementTree.fromstring(f"<div>{drawn}</div>")
    found = root.iter("{http://www.w3.org/2000/svg}polyline")
    pairs = [[pair.split(",") for pair in line.attrib["points"].split()] for line in found]
    return [[(float(x), float(y)) for x, y in line] for line in pairs]


def test_a_loss_that_falls_goes_down_the_page_from_left_to_right() -> None:
    (curve,) = lines(charts([series([4.0, 2.0, 1.0])]))
    assert [x for x, _ in curve] == sorted(x for x, _ in curve)
    assert [y for _, y in curve] == sorted(y for _, y in curve)


def test_each_rank_has_a_curve_and_further_attempts_go_on_in_it() -> None:
    found = [series([1.0, 2.0]), series([3.0, 4.0], attempt=2), series([5.0, 6.0], rank=1)]
    assert sorted(len(curve) for curve in lines(charts(found))) == [2, 4]


def test_what_is_no_number_is_in_no_drawing() -> None:
    (curve,) = lines(charts([series([1.0, "NaN", "Infinity", True, [1], 2.0])]))
    assert len(curve) == 2


@pytest.mark.parametrize("values", [[0.0, 0.0], [7.0, 7.0, 7.0], [-1e308, 1e308], [1e-300, 2e-300]])
def test_any_values_stay_on_the_page(values: list[float]) -> None:
    (curve,) = lines(charts([series(values)]))
    assert all(0 <= x <= 360 and 0 <= y <= 150 for x, y in curve)


def test_figures_of_nodes_and_single_values_are_not_drawn_and_many_are_said() -> None:
    assert charts([series([1.0, 2.0], name="node/cpu"), series([1.0], name="accuracy")]) == ""
    drawn = charts([series([1.0, 2.0], name=f"m{number}") for number in range(9)])
    assert drawn.count("<svg") == 6 and "3 more metrics" in drawn


def test_a_name_is_text() -> None:
    drawn = charts([series([1.0, 2.0], name="<script>'\"&")])
    assert "<script" not in drawn
    assert lines(drawn)
