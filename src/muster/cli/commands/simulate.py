"""`muster simulate`: what a cluster's past would have been under other policies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.console import Paint, say
from muster.cli.options import Json, option, print_json
from muster.cli.text import counted, duration, table
from muster.errors import NotFound, UserError
from muster.simulation import report
from muster.simulation.drawing import draw
from muster.simulation.jobs import DAY_S, Machines, Outcome
from muster.simulation.lines import decoded
from muster.simulation.simulator import POLICIES, Policy, simulate
from muster.simulation.trace import MOST_NODES, Past, Selection, nodes_for, part, read, select

_NAMES = ", ".join(POLICIES)
_MOST_GPUS = 1000


def command(
    trace: Annotated[Path, option("FILE", "What the cluster did: an export of Slurm's sacct, or a CSV file.")],
    nodes: Annotated[int | None, option("N", "Nodes (default: busy for 85 %).", min=1, max=MOST_NODES)] = None,
    gpus: Annotated[int, option("G", "GPUs of each node.", min=1, max=_MOST_GPUS)] = 8,
    policy: Annotated[
        list[str] | None, option("NAME", f"Which to try: {_NAMES}; repeatable (default: all but shortest).")
    ] = None,
    from_day: Annotated[float | None, option("D", "Start here (default: the first busy day).", min=0)] = None,
    days: Annotated[float | None, option("D", "Use this many days (default: to the end).", min=0.01)] = None,
    jobs: Annotated[int | None, option("N", "Use this many jobs (default: all).", min=1)] = None,
    longest_days: Annotated[float, option("D", "Longer jobs count as ended after this time.", min=0.01)] = 7.0,
    plot: Annotated[Path | None, option("FILE.svg", "Draw use, queue and waits.")] = None,
    as_json: Json = False,
) -> None:
    """Try Muster's queue on a trace of your own cluster.

    It shows what waits and GPU use would have been under Muster, with and without declared time limits (jobs that
    declared none get 1.1 to 3 times what they took, rounded up), and first in, first out.

    The file is an export of Slurm's sacct (below), or a CSV file with the columns start, gpus and length (or end): in
    seconds, as dates, or such as 90m or 1-12:00:00. submit, user, experiment, name, limit and nodes are used where
    given. Or it has the columns num_gpu, creation_time and deletion_time. A part of a GPU counts as one.

    \b
      sacct -aXP -S now-30days \\
        -o User,JobName,Partition,Submit,Start,End,Timelimit,NNodes,ReqTRES

    \b
    Examples:
      muster simulate --trace month.csv --nodes 2 --gpus 8 --policy muster --policy fifo
    """
    chosen = _policies(policy)
    _check(plot)
    past = _read(trace)
    selection = Selection(from_day, days, jobs, longest_days * DAY_S)
    count = nodes or nodes_for(part(past.entries, selection), gpus)
    found = select(past.entries, selection, gpus, count * gpus)
    machines = Machines(count, gpus, found.days)
    title = f"{counted(len(found.jobs), 'job')} submitted within {_span(found.days)}, on {count:,} × {gpus} GPUs"
    say(title)
    for text in (*past.left_out, *found.left_out):
        say(f"  left out: {text}")
    outcomes = [simulate(machines, found.jobs, item) for item in chosen]
    figures = [report.figures(outcome) for outcome in outcomes]
    if plot is not None:
        plot.write_text(draw(title, machines, outcomes))
        say(f"  drawn: {plot}")
    if as_json:
        print_json(figures)
        return
    _print(figures, outcomes)


def _check(plot: Path | None) -> None:
    """Check that a plot can be drawn, before anything is simulated."""
    if plot is not None and plot.suffix != ".svg":
        raise UserError(f"--plot {plot}: only .svg files are drawn.", "Such as --plot month.svg.")
    if plot is not None and not plot.parent.is_dir():
        raise NotFound(f"--plot {plot}: there is no folder {plot.parent}", "Make it, or give another one.")


def _read(trace: Path) -> Past:
    try:
        return read(decoded(trace.read_bytes()), str(trace))
    except OSError as error:
        raise NotFound(f"{trace} cannot be read: {error.strerror}", "Give the file of a trace.") from error


def _span(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else duration(days * DAY_S)


def _print(figures: list[report.Figures], outcomes: list[Outcome]) -> None:
    paint = Paint.of(sys.stdout)
    header, *lines = report.rows(figures)
    for line in [*table([paint(name, "dim") for name in header], lines), "", *report.chart(outcomes)]:
        typer.echo(line)


def _policies(names: list[str] | None) -> list[Policy]:
    unknown = [name for name in names or () if name not in POLICIES]
    if unknown:
        raise UserError(f"--policy {unknown[0]}: there is no such policy.", f"There are {_NAMES}.")
    return [POLICIES[name] for name in dict.fromkeys(names or [name for name in POLICIES if name != "shortest"])]
