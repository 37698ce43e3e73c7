"""Curves as PNG, SVG or PDF, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from muster.cli.plotting.curves import Curve
from muster.errors import MissingExtra, UserError
from muster.host.extras import install_command

KINDS = (".png", ".svg", ".pdf")


def require(path: Path) -> None:
    """Refuse an unsupported format before anything is fetched."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--to {path}: the name has to end in {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    if find_spec("matplotlib") is None:
        raise MissingExtra("an image needs matplotlib", f"{install_command('plot')}, or leave out --to.")


def write(curves: Sequence[Curve], title: str, along: str, path: Path, log: bool = False) -> None:
    """Write the chart to a file, in the format of its extension."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 10, "svg.hashsalt": "muster"}):
        figure = Figure(figsize=(8, 4.8), layout="constrained")
        axes = figure.subplots()
        for curve in curves:
            # Names are plain text: `$` must not start a formula.
            axes.plot(curve.x, curve.y, label=curve.label.replace("$", r"\$"), linewidth=1.4)
        axes.set_title(title.replace("$", r"\$"))
        axes.set_xlabel(along)
        axes.set_yscale("log" if log else "linear")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
