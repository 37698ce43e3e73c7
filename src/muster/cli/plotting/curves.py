"""Curves from logged metrics. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.views.metrics import is_number
from muster.wire.runs import MetricSeries


@dataclass(frozen=True)
class Curve:
    """One curve: points of one metric."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def curves_of(
    label: str, found: Sequence[MetricSeries], *, by_time: bool, begin: float, all_ranks: bool
) -> list[Curve]:
    """The curves of one run: of the first rank that logged, or of each; attempts continue the same curve."""
    ranks = sorted({one.rank if one.rank is not None else -1 for one in found})
    wanted = ranks if all_ranks else ranks[:1]
    curves = []
    for rank in wanted:
        of_rank = sorted((one for one in found if (one.rank if one.rank is not None else -1) == rank), key=_attempt)
        points = [point for one in of_rank for point in _points(one, by_time, begin)]
        name = f"{label} rank {rank}" if all_ranks and rank >= 0 and len(ranks) > 1 else label
        if points:
            curves.append(Curve(name, [x for x, _ in points], [y for _, y in points]))
    return curves


def smoothed(curve: Curve, weight: float) -> Curve:
    """An exponential moving average: 0 is the curve itself, 0.99 smooths most."""
    total = norm = 0.0
    means = []
    for value in curve.y:
        total, norm = total * weight + value * (1 - weight), norm * weight + (1 - weight)
        means.append(total / norm)
    return Curve(curve.label, curve.x, means)


def _attempt(one: MetricSeries) -> int:
    return one.attempt


def _points(one: MetricSeries, by_time: bool, begin: float) -> list[tuple[float, float]]:
    """The finite points: NaN and infinity cannot be drawn."""
    return [
        (at - begin if by_time else index if step is None else step, float(value))
        for index, (value, step, at) in enumerate(zip(one.values, one.steps, one.at, strict=True))
        if is_number(value) and math.isfinite(value)
    ]
