"""The plot of a scaling study: throughput with the ideal line, and the efficiency below it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from muster.cli.scaling.study import Row, Study
from muster.errors import MissingExtra
from muster.host.extras import install_command

_INK, _MUTED, _BLUE, _GRID = "#1f2328", "#6e7781", "#1f6feb", "#d8dee4"


def require() -> None:
    """Refuse before the first run what would otherwise fail after the last."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("drawing needs matplotlib", f"{install_command('plot')}, or give --no-plot.")


def draw(study: Study, folder: Path) -> list[Path]:
    """Write scaling.png and scaling.svg."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    rows = study.rows()
    with matplotlib.rc_context(
        {"font.size": 10, "text.color": _INK, "axes.labelcolor": _INK, "svg.hashsalt": "muster"}
    ):
        figure = Figure(figsize=(8, 6.4), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(2, 1), sharex=True)
        figure.suptitle(f"{study.job}: how throughput grows with processes", fontsize=13)
        _throughput(above, study, rows)
        _efficiency(below, rows)
        paths = [folder / "scaling.png", folder / "scaling.svg"]
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _throughput(axes: Any, study: Study, rows: Sequence[Row]) -> None:
    counts = [row.size.procs for row in rows]
    axes.plot(counts, [row.ideal for row in rows], "--", color=_MUTED, label="ideal", zorder=1)
    points = [(row.size.procs, value) for row in rows for value in row.values]
    if len(points) > len(rows):
        axes.plot(*zip(*points, strict=True), "o", color=_BLUE, alpha=0.3, markersize=5, label="each run", zorder=2)
    label = "measured (median)" if study.repeats > 1 else "measured"
    axes.plot(counts, [row.value for row in rows], "o-", color=_BLUE, linewidth=2, label=label, zorder=3)
    axes.set_ylabel(_unit(study.metric))
    axes.set_ylim(0, 1.12 * max(max(row.ideal for row in rows), *(value for row in rows for value in row.values)))
    axes.legend(loc="upper left", frameon=False)
    _tidy(axes)


def _efficiency(axes: Any, rows: Sequence[Row]) -> None:
    counts = [row.size.procs for row in rows]
    percents = [100 * row.efficiency for row in rows]
    axes.axhline(100, linestyle="--", color=_MUTED, linewidth=1)
    axes.plot(counts, percents, "o-", color=_BLUE, linewidth=2)
    top = max(118, 1.15 * max(percents))
    for count, percent in zip(counts, percents, strict=True):
        below = -14 if percent > 0.25 * top else 6  # what is low has no room below it
        axes.annotate(f"{percent:.0f} %", (count, percent), (0, below), textcoords="offset points", ha="center")
    axes.set_ylabel("efficiency (%)")
    axes.set_ylim(0, top)
    axes.set_xlabel("processes")
    if len(counts) > 1 and counts[-1] / counts[0] > 8:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    _tidy(axes)


def _tidy(axes: Any) -> None:
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.06)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _unit(metric: str) -> str:
    """`images_per_sec` reads better as images/s."""
    for ending in ("_per_second", "_per_sec", "_per_s", "/sec", "/s"):
        if metric.endswith(ending):
            return metric.removesuffix(ending).replace("_", " ") + "/s"
    return metric
