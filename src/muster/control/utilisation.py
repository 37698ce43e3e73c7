"""How much of a cluster was in use over time: averages over equal intervals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Something that was held, or waited, for a while."""

    begin: float
    end: float
    amount: float = 1.0


def averages(spans: Iterable[Span], begin: float, step_s: float, count: int) -> list[float]:
    """The average amount in each of `count` intervals of `step_s` seconds."""
    sums = [0.0] * count
    # What spans whole intervals is noted where it begins and where it ends, and added up once.
    changes = [0.0] * (count + 1)
    last = begin + step_s * count
    for span in spans:
        first_s, end_s = max(span.begin, begin) - begin, min(span.end, last) - begin
        if end_s <= first_s:
            continue
        head, tail = int(first_s / step_s), min(int(end_s / step_s), count - 1)
        if head == tail:
            sums[head] += span.amount * (end_s - first_s)
            continue
        sums[head] += span.amount * ((head + 1) * step_s - first_s)
        sums[tail] += span.amount * (end_s - tail * step_s)
        changes[head + 1] += span.amount
        changes[tail] -= span.amount
    level, found = 0.0, []
    for part, change in zip(sums, changes, strict=False):
        level += change
        found.append(part / step_s + level)
    return found


def union(spans: Iterable[Span]) -> list[Span]:
    """The time in which at least one of them holds: a node that several runs share is one busy node."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda item: item.begin):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = Span(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(Span(span.begin, span.end))
    return merged


def present(states: Sequence[tuple[float, str]], absent: frozenset[str], now: float) -> list[Span]:
    """When a node was present, by the states that it went through."""
    ends = [at for at, _ in states[1:]] + [now]
    return [Span(at, end) for (at, state), end in zip(states, ends, strict=True) if state not in absent]
