"""`muster doctor`: what fits on this machine, and how fast nodes reach each other."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from muster.cli import exits
from muster.cli.console import Paint
from muster.cli.doctor.checks import check
from muster.cli.doctor.facts import gather
from muster.cli.doctor.nodes import examine, lines
from muster.cli.options import Json, option, print_result
from muster.cli.views.findings import finding_lines


def doctor(
    nodes: Annotated[int | None, option("N", "Measure the network between N nodes, with a small job.", min=1)] = None,
    compute: Annotated[str, option("NAME", "With --nodes: their cluster.")] = "local",
    images_per_s: Annotated[
        float | None, option("X", "With --nodes: images per second that one node trains, if known.", min=0.001)
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine for problems, with advice on each.

    With --nodes, a job of a few seconds measures latency and bandwidth between the nodes of a cluster, and says
    whether another node would speed up training.

    The exit code is 1 if something would keep jobs from running.

    \b
    Examples:
      muster doctor
      muster doctor --json
      muster doctor --nodes 2
      muster doctor --nodes 2 --compute local --images-per-s 1200
    """
    if nodes is not None:
        found = examine(nodes, compute, images_per_s)
        print_result(found, lines(found, Paint.of(sys.stdout)), as_json)
        return
    findings = check(gather())
    print_result(findings, finding_lines(findings, Paint.of(sys.stdout)), as_json)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(exits.EXIT_FAILED)
