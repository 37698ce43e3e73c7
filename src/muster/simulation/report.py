"""The results of a simulation, in figures and in lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.simulation.jobs import Outcome, waited_no_longer

_HOUR_S = 3600.0
_MARKS = ((60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (6 * 3600.0, "6 h"), (86_400.0, "1 day"))
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Figures:
    """The figures of one policy; waits are in hours."""

    policy: str
    jobs: int
    mean_wait_h: float
    half_wait_at_most_h: float
    nine_of_ten_wait_at_most_h: float
    ninety_nine_of_hundred_wait_at_most_h: float
    longest_wait_h: float
    gpu_use: float
    mean_wait_of_a_gpu_hour_h: float
    """The mean wait, each job weighted by its work."""
    preemptions: int
    start_intervals: int
    """Jobs that had to wait and got a forecast of their start."""
    intervals_that_held: float | None
    """The share of them that started in the interval of their first forecast."""
    intervals_that_held_after_an_hour: float | None
    """The same for the new forecasts of those that still waited after an hour."""


def figures(outcome: Outcome) -> Figures:
    return Figures(
        outcome.name,
        len(outcome.waits_s),
        outcome.mean_wait_s / _HOUR_S,
        outcome.wait_s(0.5) / _HOUR_S,
        outcome.wait_s(0.9) / _HOUR_S,
        outcome.wait_s(0.99) / _HOUR_S,
        outcome.longest_wait_s / _HOUR_S,
        outcome.use,
        outcome.gpu_hour_wait_s / _HOUR_S,
        outcome.preemptions,
        outcome.forecasts,
        outcome.coverage,
        outcome.later_held / outcome.later_forecasts if outcome.later_forecasts else None,
    )


def rows(found: Sequence[Figures]) -> list[tuple[str, ...]]:
    """The table, header first; narrow enough for 80 columns."""
    header = ("POLICY", "MEAN", "50 %", "90 %", "99 %", "LONGEST", "GPU USE", "HELD")
    return [
        header,
        *(
            (
                item.policy,
                _hours(item.mean_wait_h),
                _hours(item.half_wait_at_most_h),
                _hours(item.nine_of_ten_wait_at_most_h),
                _hours(item.ninety_nine_of_hundred_wait_at_most_h),
                _hours(item.longest_wait_h),
                f"{item.gpu_use:.1%}",
                "-" if item.intervals_that_held is None else f"{item.intervals_that_held:.0%}",
            )
            for item in found
        ),
    ]


def chart(outcomes: Sequence[Outcome], columns: int = 80) -> list[str]:
    """A legend of the table's columns, and bars of text for busy GPUs over time and for the waits."""
    lines = [
        "Waits: the mean, what 50, 90 and 99 % of the jobs did not exceed, the longest.",
        "HELD: the share of start forecasts that held (the aim is 80 %).",
        "",
    ]
    longest = max(len(outcome.name) for outcome in outcomes)
    width = columns - longest - 4
    if any(share for outcome in outcomes for _, share, _ in outcome.timeline):
        lines.append("busy GPUs over time (empty to full):")
        for outcome in outcomes:
            shares = _sparkline([share for _, share, _ in outcome.timeline], width)
            lines.append(f"  {outcome.name:<{longest}}  {shares}")
    lines.append("jobs that waited no longer than " + ", ".join(name for _, name in _MARKS) + ":")
    for outcome in outcomes:
        waits = sorted(outcome.waits_s)
        shares = "  ".join(f"{waited_no_longer(waits, seconds):>6.1%}" for seconds, _ in _MARKS)
        lines.append(f"  {outcome.name:<{longest}}  {shares}")
    return lines


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 99.95 else f"{hours:.0f} h"


def _sparkline(values: Sequence[float], width: int) -> str:
    if not values:
        return ""
    step = max(1.0, len(values) / width)
    groups = [values[int(start * step) : max(int(start * step) + 1, int((start + 1) * step))] for start in range(width)]
    means = [sum(group) / len(group) for group in groups if group]
    return "".join(_BLOCKS[min(8, round(mean * 8))] for mean in means)
