"""Summaries of series. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from muster.host.points import Points
from muster.server.tracking.thinning import number
from muster.wire.codec import Json

_SMALLER_IS_BETTER = re.compile(
    r"loss|err(or)?|mse|mae|rmse|mape|nll|perplexity|ppl|wer|cer|fid|latency|seconds|duration|(_|/)(ms|s)$",
    re.IGNORECASE,
)


def smaller_is_better(name: str) -> bool:
    """Whether the least value of a metric is the best, by its name: a loss, an error, a time."""
    words = re.split(r"[^a-zA-Z]+|(?<=[a-z])(?=[A-Z])", name)
    return any(_SMALLER_IS_BETTER.fullmatch(word) for word in words) or bool(re.search(r"loss$", name, re.IGNORECASE))


@dataclass
class Summary:
    """One series: its count, its first and last point, its extremes."""

    number: int
    num_points: int = 0
    stored: int = 0
    """How many of its points are in blocks; the others are in tails."""
    last: Json = None
    last_number: float | None = None
    """The last value where it is a number, to compare runs by."""
    least: float | None = None
    least_step: float | None = None
    greatest: float | None = None
    greatest_step: float | None = None
    first_step: float | None = None
    last_step: float | None = None
    first_at: float = 0.0
    last_at: float = 0.0
    last_order: int = 0

    def take_in(self, points: Points) -> None:
        """Add points that follow the known ones."""
        self.take_in_rows(list(zip(points.orders, points.values, points.steps, points.at, strict=True)))

    def take_in_rows(self, rows: Sequence[tuple[int, Json, float | None, float]]) -> None:
        """The same for points that are given as order, value, step and time."""
        for row in rows:
            self.take_in_point(*row)

    def take_in_point(self, order: int, value: Json, step: float | None, at: float) -> None:
        """Add the next point."""
        if not self.num_points:
            self.first_step, self.first_at = step, at
        self.num_points += 1
        self.last_order, self.last, self.last_step, self.last_at = order, value, step, at
        found = value if type(value) is float and value == value else number(value)
        if found is None:
            self.last_number = None
            return
        self.last_number = found = float(found)
        if self.least is None or found < self.least:
            self.least, self.least_step = found, step
        if self.greatest is None or found > self.greatest:
            self.greatest, self.greatest_step = found, step
