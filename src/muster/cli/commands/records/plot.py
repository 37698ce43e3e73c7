"""`muster plot`: curves of runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from muster.cli.commands.records.metrics import unknown_metric
from muster.cli.console import Paint, columns, print_lines, say
from muster.cli.options import argument, complete_runs, option, switch
from muster.cli.plotting import image_file
from muster.cli.plotting.curves import Curve, curves_of, smoothed
from muster.cli.plotting.terminal import drawing
from muster.client.api import Client
from muster.client.connect import connect_to_read
from muster.errors import NotFound, UserError

_POINTS = 2000
_IN_A_PIPE = 100


def plot(
    names: Annotated[list[str], argument("RUN… METRIC", "Runs, and the metric last.", autocompletion=complete_runs)],
    by_time: Annotated[bool, switch("Along the time since each run's start, not along steps.", "--by-time")] = False,
    log: Annotated[bool, switch("A logarithmic axis.", "--log")] = False,
    smooth: Annotated[float, option("0…0.99", "A running mean: 0.9 is a smooth curve.", min=0.0, max=0.99)] = 0.0,
    all_ranks: Annotated[bool, switch("A curve for each rank, not only for the first.", "--all-ranks")] = False,
    to: Annotated[Path | None, option("FILE", "Write an image: .png, .svg or .pdf.")] = None,
) -> None:
    """Draw a metric of runs, in the terminal or as an image.

    \b
    Examples:
      muster plot @latest loss
      muster plot brave-otter calm-lynx loss --smooth 0.8
      muster plot @latest loss --log --to loss.svg
    """
    if len(names) < 2:
        raise UserError(f"plot {names[0]}: give at least one run, and then the metric.", "muster plot @latest loss")
    if to is not None:
        image_file.require(to)
    *runs, metric = names
    client = connect_to_read()
    curves = _load(client, runs, metric, by_time, all_ranks)
    if smooth:
        curves = [smoothed(curve, smooth) for curve in curves]
    if to is not None:
        image_file.write(curves, metric, "seconds" if by_time else "step", to, log)
        say(f"wrote {to}")
        return
    room = columns(sys.stdout) or _IN_A_PIPE
    height = max(8, min(20, shutil.get_terminal_size().lines - 6))
    print_lines(drawing(curves, metric, Paint.of(sys.stdout), room, height, log))


def _load(client: Client, runs: Sequence[str], metric: str, by_time: bool, all_ranks: bool) -> list[Curve]:
    found: list[Curve] = []
    for ref in dict.fromkeys(runs):
        view = client.run(ref)
        series = client.metric_series(view.id, metric, _POINTS)
        if not series:
            raise unknown_metric(client, view.id, metric)
        label = view.name or view.id
        begin = view.started_at or view.created_at
        found += curves_of(label, series, by_time=by_time, begin=begin, all_ranks=all_ranks)
    if not found:
        raise NotFound(f"{metric!r} holds no numbers in {', '.join(runs)}", "`muster metrics RUN NAME` prints it.")
    return found
