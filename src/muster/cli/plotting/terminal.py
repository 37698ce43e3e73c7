"""Curves in characters: each holds two by four dots. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.cli.console import Paint
from muster.cli.plotting.curves import Curve
from muster.cli.text import number

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY = 0x2800
_COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red")
_MARKS = "●◆▲■★✚"


def drawing(curves: Sequence[Curve], title: str, paint: Paint, width: int, height: int, log: bool = False) -> list[str]:
    """The lines of a chart: axis, curves and legend."""
    shown = [Curve(one.label, one.x, [_scaled(value, log) for value in one.y]) for one in curves]
    shown = [_without_gaps(one) for one in shown]
    known = [value for one in shown for value in one.y]
    if not known:
        return [f"{title}: nothing that can be drawn{' on a logarithmic axis' if log else ''}"]
    low, high = min(known), max(known)
    left, right = min(min(one.x) for one in shown if one.x), max(max(one.x) for one in shown if one.x)
    room = width - 11
    canvas = _Canvas(room, height)
    for index, curve in enumerate(shown):
        canvas.draw(curve, (left, right), (low, high), index)
    ends = [_shown(high, log), *[""] * (height - 2), _shown(low, log)]
    lines = [
        f"{paint(f'{end:>9} ┤' if end else ' ' * 10 + '│', 'dim')}{canvas.line(row, paint)}"
        for row, end in enumerate(ends)
    ]
    axis = f"{_at(left)}{_at(right):>{max(1, room - len(_at(left)))}}"
    legend = "   ".join(
        paint(f"{_MARKS[index % len(_MARKS)]} {one.label}", _COLORS[index % len(_COLORS)])
        for index, one in enumerate(curves)
    )
    return [paint(title, "bold"), *lines, paint(f"{'':>11}{axis}", "dim"), legend]


def _at(value: float) -> str:
    """Format a step, which is whole, or a time, which may not be."""
    return f"{int(value):,}" if float(value).is_integer() else number(value)


def _scaled(value: float, log: bool) -> float:
    if not log:
        return value
    return math.log10(value) if value > 0 else math.nan


def _shown(value: float, log: bool) -> str:
    return number(10**value if log else value)


def _without_gaps(curve: Curve) -> Curve:
    kept = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
    return Curve(curve.label, [x for x, _ in kept], [y for _, y in kept])


class _Canvas:
    """A dot canvas that remembers which curve drew each character last."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = max(10, width), max(2, height)
        self._cells = [[0] * self._width for _ in range(self._height)]
        self._owners = [[0] * self._width for _ in range(self._height)]

    def draw(self, curve: Curve, across: tuple[float, float], upward: tuple[float, float], owner: int) -> None:
        before: tuple[int, int] | None = None
        for x, y in zip(curve.x, curve.y, strict=True):
            here = (
                _dot(x, across, self._width * 2),
                self._height * 4 - 1 - _dot(y, upward, self._height * 4),
            )
            self._line(before or here, here, owner)
            before = here

    def _line(self, begin: tuple[int, int], end: tuple[int, int], owner: int) -> None:
        steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
        for step in range(steps + 1):
            x = round(begin[0] + (end[0] - begin[0]) * step / steps)
            y = round(begin[1] + (end[1] - begin[1]) * step / steps)
            self._cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
            self._owners[y // 4][x // 2] = owner

    def line(self, row: int, paint: Paint) -> str:
        """One row, with each curve in its colour."""
        found, stretch, owner = [], "", -1
        for cell, of in zip(self._cells[row], self._owners[row], strict=True):
            mine = of if cell else -1
            if mine != owner:
                found.append(paint(stretch, _COLORS[owner % len(_COLORS)]) if owner >= 0 else stretch)
                stretch, owner = "", mine
            stretch += chr(_EMPTY + cell) if cell else " "
        found.append(paint(stretch, _COLORS[owner % len(_COLORS)]) if owner >= 0 else stretch)
        return "".join(found).rstrip()


def _dot(value: float, span: tuple[float, float], room: int) -> int:
    low, high = span
    return min(room - 1, int((value - low) / (high - low) * (room - 1) + 0.5)) if high > low else room // 2
