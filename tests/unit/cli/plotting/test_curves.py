"""Curves on a terminal and as pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.cli.console import Paint
from muster.cli.plotting import image_file
from muster.cli.plotting.curves import Curve, curves_of, smoothed
from muster.cli.plotting.terminal import drawing
from muster.errors import UserError
from muster.wire.codec import Json
from muster.wire.runs import MetricSeries

PLAIN = Paint(False)


def series(rank: int | None, values: tuple[Json, ...], attempt: int = 1, first: int = 0) -> MetricSeries:
    count = len(values)
    steps = tuple(float(first + number) for number in range(count))
    source = "client" if rank is None else f"rank_{rank}"
    at = tuple(100.0 + number for number in range(count))
    return MetricSeries(
        "loss", source, rank, attempt, "scalar", count, None, None, values, steps, at, tuple(range(count))
    )


def test_a_run_has_one_curve_over_its_attempts() -> None:
    found = [series(1, (9.0,)), series(0, (3.0,), attempt=2, first=2), series(0, (1.0, 2.0))]
    (curve,) = curves_of("a", found, by_time=False, begin=0.0, all_ranks=False)
    assert (curve.label, curve.x, curve.y) == ("a", [0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    every = curves_of("a", found, by_time=True, begin=100.0, all_ranks=True)
    assert [(one.label, one.x[0]) for one in every] == [("a rank 0", 0.0), ("a rank 1", 0.0)]


def test_what_is_no_number_is_left_out() -> None:
    (curve,) = curves_of("a", [series(None, (1.0, "NaN", None, True, 2))], by_time=False, begin=0.0, all_ranks=False)
    assert curve.y == [1.0, 2.0]
    assert curves_of("a", [series(0, ("NaN",))], by_time=False, begin=0.0, all_ranks=False) == []


def test_a_smooth_curve_is_not_pulled_to_nothing() -> None:
    assert smoothed(Curve("a", [0, 1, 2], [5.0, 5.0, 5.0]), 0.9).y == pytest.approx([5.0, 5.0, 5.0])


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_drawing_fits_its_terminal(width: int) -> None:
    curves = [Curve("falls", list(range(1000)), [1000.0 - x for x in range(1000)]), Curve("flat", [0, 999], [1.0, 1.0])]
    lines = drawing(curves, "loss", PLAIN, width, 10)
    assert len(lines) == 13
    assert all(len(line) <= width for line in lines[:-1])
    # It begins high on the left and ends low on the right.
    assert lines[1].split("┤")[1].strip()
    assert len(lines[10].rstrip()) > len(lines[1].rstrip())
    assert "falls" in lines[-1]


def test_a_logarithmic_axis_has_no_room_for_nothing() -> None:
    assert "nothing that can be drawn" in drawing([Curve("a", [0, 1], [0.0, -1.0])], "loss", PLAIN, 80, 10, log=True)[0]
    lines = drawing([Curve("a", [0, 1, 2], [0.0, 1.0, 100.0])], "loss", PLAIN, 80, 10, log=True)
    assert lines[1].startswith("      100")


def test_pictures_are_written_by_their_names(tmp_path: Path) -> None:
    curves = [Curve("$a_b$ <x>", [0, 1], [1.0, 2.0])]
    for name, beginning in (("a.png", b"\x89PNG"), ("b.svg", b"<?xml")):
        image_file.write(curves, "$loss", "step", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(beginning)
    with pytest.raises(UserError, match="has to end in"):
        image_file.require(tmp_path / "a.txt")


def test_steps_on_the_axis_are_whole_numbers() -> None:
    axis = drawing([Curve("a", [0.0, 8349.0], [1.0, 2.0])], "loss", PLAIN, 80, 10)[-2]
    assert axis.split() == ["0", "8,349"]
    assert drawing([Curve("a", [0.5, 2.25], [1.0, 2.0])], "loss", PLAIN, 80, 10)[-2].split() == ["0.5", "2.25"]
