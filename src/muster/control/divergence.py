"""Whether a training has diverged: decided from the losses that its ranks log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from muster.wire.runs import MetricPoint

_LOSS = re.compile(r"(?:.*[/_. -])?loss(?:[/_. -].*)?", re.IGNORECASE)
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
_MARK = "is not a number"


def diverged(points: Iterable[MetricPoint]) -> str | None:
    """A notice where a loss is no longer a number; None where all are."""
    for point in points:
        if point.value in _NOT_NUMBERS and _LOSS.fullmatch(point.name):
            since = "" if point.step is None else f" since step {point.step:g}"
            who = "" if point.rank is None else f" of rank {point.rank}"
            return (
                f"{point.name}{who} {_MARK}{since} ({point.value}): a lower learning rate or clipped gradients may "
                "help; checkpoints from before are still good"
            )
    return None


def is_noted(notices: Iterable[str]) -> bool:
    """Whether the run has such a notice already: every later loss would only repeat it."""
    return any(_MARK in text for text in notices)
