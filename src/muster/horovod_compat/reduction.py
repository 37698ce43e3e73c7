"""How values of several ranks become one, under Horovod's numbers for these operations."""

from __future__ import annotations

import warnings
from typing import Callable, List, Optional, TypeVar

Average, Sum, Adasum, Min, Max, Product = 0, 1, 2, 3, 4, 5
NAMES = {Average: "Average", Sum: "Sum", Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}

T = TypeVar("T")


def chosen(op: Optional[int], average: Optional[bool]) -> int:
    """The operation that a call asks for, with `op` or with the older `average`."""
    if op is not None and average is not None:
        raise ValueError("op and average were both given; average is the older name for op: give only op")
    if op is None and average is not None:
        warnings.warn("`average` is the older word for `op` (hvd.Average, hvd.Sum)", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    found = Average if op is None else op
    if found not in NAMES:
        raise ValueError(f"op={op} is no operation; there are hvd.{', hvd.'.join(NAMES.values())}")
    return found


def check_adasum(size: int) -> None:
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs 2, 4, 8 … ranks; here are {size}")


def in_pairs(values: List[T], combined: Callable[[T, T], T]) -> T:
    """Combine neighbours, then the results of neighbouring pairs, and so on."""
    while len(values) > 1:
        values = [combined(values[at], values[at + 1]) for at in range(0, len(values), 2)]
    return values[0]


def shares(rows: int, ranks: int) -> List[int]:
    """The number of rows for each rank: the first ranks get the remainder."""
    whole, rest = divmod(rows, ranks)
    return [whole + (rank < rest) for rank in range(ranks)]
