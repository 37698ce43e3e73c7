"""How far ranks came, by the steps that they print: "step 7", "epoch 2 batch 31", in whatever words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from muster.diagnosis.launchers import Process

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MOST_LINES = 200
_FEW_LINES = 12
_MANY = 64
"""Of more ranks than these, fewer lines are compared: a verdict must not be late."""


def of(processes: Sequence[Process]) -> Mapping[int, int]:
    """By rank, the last step that it printed; only ranks that count in the same words."""
    most = _MOST_LINES if len(processes) <= _MANY else _FEW_LINES
    by_rank = {process.rank.rank: _counted(process, most) for process in processes}
    shapes = Counter(shape for counted in by_rank.values() for shape in counted)
    if not shapes:
        return {}
    shape, ranks = max(shapes.items(), key=lambda item: (item[1], item[0]))
    if ranks < 2:
        return {}
    return {number: counted[shape] for number, counted in by_rank.items() if shape in counted}


def _counted(process: Process, most: int) -> dict[str, int]:
    """The shapes of lines that a process printed, each with where its growing number got to."""
    rows: dict[str, list[tuple[int, ...]]] = {}
    for line in process.log.words_between(max(0, len(process.log.lines) - most)):
        numbers = _NUMBER.findall(line[:200])
        if not numbers or len(numbers) > 12:
            continue
        shape = _NUMBER.sub("#", line[:200])
        rows.setdefault(shape, []).append(tuple(int(float(number)) for number in numbers))
    return {shape: grown for shape, found in rows.items() if (grown := _growing(found)) is not None}


def _growing(rows: Sequence[tuple[int, ...]]) -> int | None:
    """Where the first number got to that grows from line to line; a single line counts by its last number."""
    width = min(len(row) for row in rows)
    for column in range(width):
        values = [row[column] for row in rows]
        if len(values) > 1 and all(later == former + 1 for former, later in pairwise(values)):
            return values[-1]
    return None
