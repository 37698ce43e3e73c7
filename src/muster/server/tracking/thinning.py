"""Thins out long series: keeps the ends, and the least and the greatest value of every interval. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from muster.wire.codec import Json

TIER_STRETCHES = (16, 128, 1024)
"""How many points one interval of each tier covers; the largest is a whole block."""


def thin(values: Sequence[Json], most: int) -> list[int]:
    """Which values to keep: the first, the last, and of each interval the least, the greatest and one non-number.

    So neither a peak is lost, nor a step at which a loss was not a number.
    """
    if len(values) <= most:
        return list(range(len(values)))
    are_numbers = _are_numbers(values)
    stretches = max(1, (most - 2) // (2 if are_numbers else 3))
    bounds = [len(values) * stretch // stretches for stretch in range(stretches + 1)]
    kept = {0, len(values) - 1}
    for begin, end in itertools.pairwise(bounds):
        kept.update(_standing_out(values, begin, end, are_numbers))
    return sorted(kept)


def stand_outs(values: Sequence[Json], stretch: int, is_first: bool = False) -> list[int]:
    """The extreme values of every interval, which a tier keeps, and a series' first value."""
    are_numbers = _are_numbers(values)
    kept: set[int] = {0} if is_first else set()
    for begin in range(0, len(values), stretch):
        kept.update(_standing_out(values, begin, min(begin + stretch, len(values)), are_numbers))
    return sorted(kept)


def tier_for(count: int, most: int) -> int:
    """The coarsest tier that still has so many points of a series; 0: the points themselves."""
    fitting = [tier for tier, stretch in enumerate(TIER_STRETCHES, 1) if 2 * count // stretch >= most]
    return max(fitting, default=0)


def number(value: Json) -> float | None:
    """A comparable value; None for one that is not a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value == value else None


def _are_numbers(values: Sequence[Json]) -> bool:
    return all(type(value) is float or type(value) is int for value in values) and not any(
        type(value) is float and math.isnan(value) for value in values
    )


def _standing_out(values: Sequence[Json], begin: int, end: int, are_numbers: bool) -> tuple[int, ...]:
    part = values[begin:end]
    if are_numbers:
        # Inlined for speed: this is called for every few points of a chart.
        return begin + part.index(min(part)), begin + part.index(max(part))  # type: ignore[type-var]
    numbers = [number(value) for value in part]
    finite = [index for index, found in enumerate(numbers) if found is not None]
    kept = [next(index for index, found in enumerate(numbers) if found is None)] if len(finite) < len(part) else []
    if finite:
        kept += [min(finite, key=lambda i: numbers[i] or 0.0), max(finite, key=lambda i: numbers[i] or 0.0)]
    return tuple(begin + index for index in kept)
