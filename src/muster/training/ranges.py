"""Parts of a sequence as ranges of positions, such as the rest of an epoch."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]


def cut(ranges: Ranges, begin: int, end: int) -> Ranges:
    """The numbers in the ranges from the `begin`th to before the `end`th."""
    return cut_parts(ranges, [(begin, end)])


def cut_parts(ranges: Ranges, parts: Ranges) -> Ranges:
    """The same for several parts, one after the other."""
    found: Ranges = []
    number = passed = 0
    for begin, end in parts:
        while number < len(ranges):
            first, last = ranges[number]
            low, high = max(begin - passed, 0), min(end - passed, last - first)
            if low < high:
                found.append((first + low, first + high))
            if end <= passed + last - first:
                break
            passed += last - first
            number += 1
    return found


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same numbers in the same order, with adjacent ranges merged and empty ranges left out."""
    found: Ranges = []
    for begin, end in ranges:
        if begin >= end:
            continue
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def total(ranges: Ranges) -> int:
    return sum(end - begin for begin, end in ranges)
