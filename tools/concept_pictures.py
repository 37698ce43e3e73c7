"""Draws the pictures of docs/concepts.md: python -m tools.concept_pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "docs" / "images"
RANKS = ("#4c78a8", "#59a14f", "#f28e2b", "#b07aa1")
GREY = "#e5e5e5"


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, text: str = "") -> None:
    axes.add_patch(matplotlib.patches.Rectangle((x, y), width, height, facecolor=colour, edgecolor="white"))
    dark = colour == GREY
    axes.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8, color="black" if dark else "white"
    )


def arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], both: bool = False) -> None:
    axes.annotate("", xy=end, xytext=begin, arrowprops={"arrowstyle": "<->" if both else "->", "color": "#555555"})


def data_parallel(axes: Axes) -> None:
    """Each rank: its part of the batch, the whole model, a gradient; then one mean for all."""
    for rank in range(3):
        x = rank * 3.2
        box(axes, x, 3.4, 2.4, 0.6, RANKS[rank], f"part {rank + 1} of the batch")
        box(axes, x, 1.9, 2.4, 1.0, GREY, "the whole model")
        box(axes, x, 0.8, 2.4, 0.6, RANKS[rank], f"gradient of rank {rank}")
        arrow(axes, (x + 1.2, 3.4), (x + 1.2, 2.9))
        arrow(axes, (x + 1.2, 1.9), (x + 1.2, 1.4))
        arrow(axes, (x + 1.2, 0.8), (x + 1.2, 0.45), both=True)
    box(axes, 0, -0.15, 8.8, 0.6, "#555555", "all-reduce: the mean of the gradients, on every rank")


def model_parallel(axes: Axes) -> None:
    """The same four layers, divided in three ways over two ranks."""
    for column, title in enumerate(("pipeline: layers", "tensor parallel: matrices", "fully sharded: every weight")):
        left = column * 3.4
        axes.text(left + 1.4, 4.3, title, ha="center", fontsize=8)
        for layer in range(4):
            y = 3.2 - layer
            if column == 0:
                rank = layer // 2
                box(axes, left, y, 2.8, 0.8, RANKS[rank], f"layer {layer + 1}: rank {rank}")
                continue
            for rank in range(2):
                what = "columns" if layer % 2 == 0 else "rows"
                text = f"{what}: rank {rank}" if column == 1 else f"half: rank {rank}"
                if column == 1 and layer % 2:
                    box(axes, left, y + 0.4 * (1 - rank), 2.8, 0.4, RANKS[rank], text)
                else:
                    box(axes, left + 1.4 * rank, y, 1.4, 0.8, RANKS[rank], text)


def synchronous(axes: Axes) -> None:
    """Steps of uneven length: with waiting for all, and without."""
    lengths = ((1.0, 1.2, 0.9, 1.1), (1.1, 1.9, 1.0, 1.0), (0.9, 1.0, 1.0, 1.8))
    for rank, own in enumerate(lengths):
        begin = 0.0
        for step, length in enumerate(own):
            slowest = max(others[step] for others in lengths)
            box(axes, begin, 4.6 - rank * 0.7, length, 0.55, RANKS[rank], str(step + 1))
            if length < slowest:
                box(axes, begin + length, 4.6 - rank * 0.7, slowest - length, 0.55, GREY, "")
            begin += slowest
        begin = 0.0
        for step, length in enumerate(own):
            box(axes, begin, 1.6 - rank * 0.7, length, 0.55, RANKS[rank], str(step + 1))
            begin += length
        for row in (4.6, 1.6):
            axes.text(-0.1, row + 0.27 - rank * 0.7, f"rank {rank}", ha="right", va="center", fontsize=8)
    axes.text(0, 5.4, "synchronous: all wait for the slowest, in every step (grey)", fontsize=8)
    axes.text(0, 2.4, "asynchronous: each takes its step when it is done", fontsize=8)
    axes.set_xlim(-0.9, 7.4)


def collectives(axes: Axes) -> None:
    """What three ranks have before and after."""
    rows = (
        ("broadcast", ("A", "", ""), ("A", "A", "A")),
        ("all-reduce", ("A", "B", "C"), ("A+B+C",) * 3),
        ("all-gather", ("A", "B", "C"), ("A B C",) * 3),
        ("reduce-scatter", ("A₁A₂A₃", "B₁B₂B₃", "C₁C₂C₃"), ("A₁+B₁+C₁", "A₂+B₂+C₂", "A₃+B₃+C₃")),
        ("all-to-all", ("A₁A₂A₃", "B₁B₂B₃", "C₁C₂C₃"), ("A₁B₁C₁", "A₂B₂C₂", "A₃B₃C₃")),
    )
    for row, (name, before, after) in enumerate(rows):
        y = 4 - row
        axes.text(-0.2, y + 0.3, name, ha="right", va="center", fontsize=8)
        for rank in range(3):
            box(axes, rank * 1.5, y, 1.4, 0.6, RANKS[rank] if before[rank] else GREY, before[rank])
            box(axes, 5.6 + rank * 1.5, y, 1.4, 0.6, RANKS[rank], after[rank])
        arrow(axes, (4.6, y + 0.3), (5.5, y + 0.3))
    for rank in range(3):
        for left in (0.0, 5.6):
            axes.text(left + rank * 1.5 + 0.7, 4.75, f"rank {rank}", ha="center", fontsize=8)
    axes.set_xlim(-2, 10.2)


PICTURES: dict[str, tuple[Callable[[Axes], None], float]] = {
    "data-parallel": (data_parallel, 2.6),
    "model-parallel": (model_parallel, 2.6),
    "synchronous": (synchronous, 3.2),
    "collectives": (collectives, 3.0),
}


def main() -> None:
    with matplotlib.rc_context({"svg.hashsalt": "muster", "svg.fonttype": "none", "font.size": 9}):
        for name, (draw, height) in PICTURES.items():
            figure = Figure(figsize=(8, height), layout="constrained")
            axes = figure.subplots()
            draw(axes)
            axes.autoscale_view()
            axes.axis("off")
            figure.savefig(IMAGES / f"concept-{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
