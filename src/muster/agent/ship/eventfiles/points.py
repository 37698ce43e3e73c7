"""What is read from files of other tools, whatever the tool."""

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
        """The value as lines of events have it: JSON lacks some numbers."""
        if math.isfinite(self.value):
            return self.value
        return "NaN" if math.isnan(self.value) else "Infinity" if self.value > 0 else "-Infinity"


class Param(NamedTuple):
    """A setting that a script says it was given."""

    tag: str
    value: str


@dataclass
class Taken:
    """What a stretch of a file holds."""

    items: list[Point | Param] = field(default_factory=list)
    consumed: int = 0
    """Bytes that need not be looked at again; may be more than there were, where something is passed over."""
    lost: int = 0
    """Records that could not be read."""
    broken: bool = False
    """Where a record begins is not known any more: nothing can be read behind this."""
