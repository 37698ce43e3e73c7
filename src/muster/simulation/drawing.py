"""Draws the results of a simulation as SVG: busy GPUs and queue over time, and how long jobs waited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from muster.simulation.jobs import Machines, Outcome

_COLORS = ("#1f6feb", "#7c3aed", "#d9480f", "#2b8a3e", "#868e96")
_DASHES = ("", "", "6 5", "", "2 3")
"""Different dashes, so that lines on top of each other stay visible."""
_USUAL_WAIT_S = 400_000.0
_WIDTH, _PANEL, _LEFT, _TOP, _GAP = 900, 170, 70, 70, 52


def draw(title: str, machines: Machines, outcomes: Sequence[Outcome]) -> str:
    """Three panels, from top to bottom."""
    height = _TOP + 3 * (_PANEL + _GAP)
    queued = max(1, max((point[2] for outcome in outcomes for point in outcome.timeline), default=1))
    longest = max([_USUAL_WAIT_S, *(wait for outcome in outcomes for wait in outcome.waits_s)])
    days = machines.days
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *_legend(outcomes),
        *_panel(0, "busy GPUs", [("0", 0.0), ("50 %", 0.5), ("100 %", 1.0)], _days(days)),
        *_panel(1, "gangs in the queue", [("0", 0.0), (f"{queued:,}", 1.0)], _days(days)),
        *_panel(2, "jobs that waited no longer", [("0", 0.0), ("50 %", 0.5), ("100 %", 1.0)], _hours(longest)),
    ]
    for color, dashes, outcome in zip(_COLORS, _DASHES, outcomes, strict=False):
        parts.append(_line(0, [(day / days, share) for day, share, _ in outcome.timeline], color, dashes))
        parts.append(_line(1, [(day / days, count / queued) for day, _, count in outcome.timeline], color, dashes))
        parts.append(_line(2, _waits(outcome, longest), color, dashes))
    return "\n".join([*parts, "</svg>", ""])


def _legend(outcomes: Sequence[Outcome]) -> list[str]:
    parts = []
    for number, (color, outcome) in enumerate(zip(_COLORS, outcomes, strict=False)):
        x = _LEFT + number * 165
        parts.append(f'<rect x="{x}" y="33" width="14" height="4" fill="{color}"/>')
        parts.append(f'<text x="{x + 20}" y="40">{escape(outcome.name)}</text>')
    return parts


def _panel(row: int, title: str, marks: list[tuple[str, float]], ticks: list[tuple[str, float]]) -> list[str]:
    top, bottom, right = _y(row, 1.0), _y(row, 0.0), _x(1.0)
    parts = [f'<text x="{_LEFT}" y="{top - 6:.0f}" fill="#555">{title}</text>']
    for text, at in marks:
        y = _y(row, at)
        parts.append(f'<line x1="{_LEFT}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for text, at in ticks:
        parts.append(f'<text x="{_x(at):.1f}" y="{bottom + 16:.0f}" text-anchor="middle" fill="#555">{text}</text>')
    return parts


def _line(row: int, points: Sequence[tuple[float, float]], color: str, dashes: str) -> str:
    path = " ".join(f"{_x(x):.1f},{_y(row, y):.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.4"{dashed}/>'


def _days(days: float) -> list[tuple[str, float]]:
    step = max(1, round(days / 6))
    return [(f"day {day}", day / days) for day in range(0, int(days) + 1, step)]


def _hours(longest: float) -> list[tuple[str, float]]:
    marks = [
        ("1 min", 60),
        ("10 min", 600),
        ("1 h", 3600),
        ("10 h", 36_000),
        ("100 h", 360_000),
        ("1,000 h", 3_600_000),
    ]
    return [(text, _log(seconds, longest)) for text, seconds in marks if seconds <= longest]


def _waits(outcome: Outcome, longest: float) -> list[tuple[float, float]]:
    waits = sorted(outcome.waits_s)
    step = max(1, len(waits) // 400)
    picked = [*range(0, len(waits), step), len(waits) - 1]
    return [(_log(waits[index], longest), (index + 1) / len(waits)) for index in picked]


def _log(seconds: float, longest: float) -> float:
    """From 30 seconds to the longest wait, at least a little more than 100 hours."""
    return math.log(max(seconds, 30.0) / 30.0) / math.log(longest / 30.0)


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - 30)


def _y(row: int, share: float) -> float:
    return _TOP + row * (_PANEL + _GAP) + (1.0 - share) * _PANEL
