"""Data read from event files, whatever the tool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Point(NamedTuple):
    """One number that a script logged."""

    tag: str
    value: float
    step: float | None
    at: float

    @property
    def shown(self) -> float | str:
        """The value as event lines write it: JSON lacks some numbers."""
        if math.isfinite(self.value):
            return self.value
        return "NaN" if math.isnan(self.value) else "Infinity" if self.value > 0 else "-Infinity"


class Param(NamedTuple):
    """A parameter that a script logged."""

    tag: str
    value: str


@dataclass
class Taken:
    """The content of a stretch of a file."""

    items: list[Point | Param] = field(default_factory=list)
    consumed: int = 0
    """Bytes that need not be read again; may be more than there were, where something is skipped."""
    lost: int = 0
    """How many records could not be read."""
    broken: bool = False
    """Record boundaries are lost: nothing can be read behind this point."""
