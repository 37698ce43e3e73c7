"""A run in a notebook: its state and its curves, updated until it ends."""

from __future__ import annotations

import html
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from muster.errors import MusterError
from muster.wire.codec import Json
from muster.wire.runs import MetricSeries

POINTS = 300
"""The most points of a curve; a chart has hardly more pixels."""
_EVERY_S = 1.0
_MOST_CHARTS, _MOST_CURVES = 6, 8
_WIDTH, _HEIGHT, _LEFT, _BELOW = 360, 150, 48, 18
_COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#666666")

Points = list[tuple[float, float]]


class Shown(Protocol):
    """The part of a run that a view needs."""

    @property
    def id(self) -> str: ...
    def done(self) -> bool: ...
    def _repr_html_(self) -> str: ...


def show(run: Shown, elsewhere: str) -> threading.Thread | None:
    """Show a run and update the view in a thread until the run has ended; outside a notebook, print a text."""
    display = _display()
    if display is None:
        print(elsewhere)
        return None
    handle = display(_Page(run._repr_html_()), display_id=True)
    if run.done():
        return None
    thread = threading.Thread(target=_follow, args=(run, handle), name=f"view of {run.id}", daemon=True)
    thread.start()
    return thread


def _follow(run: Shown, handle: Any) -> None:
    pause, ended = threading.Event(), False
    while not ended:
        pause.wait(_EVERY_S)
        try:
            ended = run.done()
            handle.update(_Page(run._repr_html_()))
        except MusterError:
            ended = False  # the server may be unavailable for a while; the view stays as it is


class _Page:
    """HTML for IPython, without importing it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _display() -> Any:
    """IPython's `display` in a notebook's kernel; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    shell = import_module("IPython").get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    return import_module("IPython.display").display


def table(rows: Mapping[str, object]) -> str:
    """A table of names and values; empty values are left out. Pure, like the functions below."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>"
        for key, value in rows.items()
        if value not in (None, "")
    )
    return f"<table>{cells}</table>"


def charts(found: Sequence[MetricSeries]) -> str:
    """A drawing of each metric that a script logged more than once, with a curve for each rank."""
    curves: dict[str, dict[str, Points]] = {}
    for one in sorted(found, key=lambda one: one.attempt):
        if one.name.startswith(("node/", "muster/")):
            continue
        whose = "" if one.rank is None else f"rank {one.rank}"
        curves.setdefault(one.name, {}).setdefault(whose, []).extend(_points(one))
    drawn = [_chart(name, ranks) for name, ranks in curves.items() if any(len(points) > 1 for points in ranks.values())]
    more = f"<p>{len(drawn) - _MOST_CHARTS} more metrics are not drawn</p>" if len(drawn) > _MOST_CHARTS else ""
    return "".join(drawn[:_MOST_CHARTS]) + more


def _points(one: MetricSeries) -> Points:
    """The points that are finite numbers: NaN and infinity cannot be drawn."""
    return [
        (float(index if step is None else step), number)
        for index, (value, step) in enumerate(zip(one.values, one.steps, strict=True))
        if (number := _number(value)) is not None
    ]


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _chart(name: str, ranks: Mapping[str, Points]) -> str:
    shown = dict(list(ranks.items())[:_MOST_CURVES])
    points = [point for curve in shown.values() for point in curve]
    across, upward = _span([x for x, _ in points]), _span([y for _, y in points])
    lines = "".join(
        _curve(curve, whose, across, upward, colour)
        for (whose, curve), colour in zip(shown.items(), _COLOURS, strict=False)
    )
    bottom, middle = _HEIGHT - _BELOW, html.escape(name)
    texts = "".join(
        f"<text x='{x}' y='{y}' text-anchor='{anchor}' font-size='10' fill='currentColor'>{text}</text>"
        for x, y, anchor, text in (
            (_LEFT - 4, 24, "end", f"{upward[1]:.4g}"),
            (_LEFT - 4, bottom, "end", f"{upward[0]:.4g}"),
            (_LEFT, _HEIGHT - 4, "start", f"{across[0]:g}"),
            (_WIDTH - 4, _HEIGHT - 4, "end", f"{across[1]:g}"),
            ((_LEFT + _WIDTH) // 2, 11, "middle", middle),
        )
    )
    frame = f"<path d='M{_LEFT} 16V{bottom}H{_WIDTH - 4}' fill='none' stroke='currentColor' stroke-opacity='.4'/>"
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='{html.escape(name, quote=True)}' "
        f"xmlns='http://www.w3.org/2000/svg'>{frame}{texts}{lines}</svg>"
    )


def _curve(points: Points, whose: str, across: tuple[float, float], upward: tuple[float, float], colour: str) -> str:
    """A line, or a dot if there is only one point."""
    places = [
        (
            _LEFT + _part(x, across) * (_WIDTH - 4 - _LEFT),
            _HEIGHT - _BELOW - _part(y, upward) * (_HEIGHT - _BELOW - 18),
        )
        for x, y in points
    ]
    title = f"<title>{whose}</title>"
    if len(places) == 1:
        return f"<circle cx='{places[0][0]:.1f}' cy='{places[0][1]:.1f}' r='2' fill='{colour}'>{title}</circle>"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.3'>{title}</polyline>"


def _part(value: float, span: tuple[float, float]) -> float:
    """The position of a value in a span, from 0 to 1; computed with halves, since a difference may overflow."""
    return (value / 2 - span[0] / 2) / (span[1] / 2 - span[0] / 2)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest value; widened a little if they are equal."""
    least, greatest = min(values), max(values)
    if greatest / 2 - least / 2 > 0:
        return least, greatest
    around = abs(least) * 0.1 or 1.0
    return least - around, least + around
