"""`muster stacks`: the stacks of a run's ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from muster.cli.commands.inside.entering import once_started
from muster.cli.console import notice
from muster.cli.options import Json, Run, option, print_result, switch
from muster.cli.views.stacks import grouped, page
from muster.client.api import Client
from muster.client.connect import connect
from muster.errors import MusterError
from muster.wire.tunnels import StacksReport

_AT_ONCE = 16


def stacks(
    run: Run,
    rank: Annotated[int | None, option("N", "Only this rank.", min=0, show_default=False)] = None,
    threads: Annotated[bool, switch("Every thread, not only the main one.", "--threads")] = False,
    as_json: Json = False,
) -> None:
    """Show where each rank is: its Python stacks, equal ones only once.

    The ranks keep running. With py-spy on the node (`pip install py-spy`) they are not disturbed; otherwise each writes
    its stacks to its log, from where they are read.

    \b
    Examples:
      muster stacks @latest
      muster stacks @latest --rank 1 --threads
    """
    client = connect()
    report = _report(client, run, rank)
    for text in report.notices:
        notice(text)
    print_result(report, page(grouped(report.processes, threads)), as_json)


def _report(client: Client, run: str, rank: int | None) -> StacksReport:
    """The reports of all nodes of the run; those that do not answer are named."""
    view, first = once_started(lambda: client.stacks(run, rank, None if rank is not None else 0))
    if rank is not None or view.num_nodes == 1:
        return first
    reports, notices = [first], list(first.notices)
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        pending = [workers.submit(client.stacks, view.run, None, node) for node in range(1, view.num_nodes)]
        for number, future in enumerate(pending, 1):
            try:
                reports.append(future.result()[1])
            except MusterError as error:
                notices.append(f"node {number} says nothing: {error.message}")
    ways = ", ".join(sorted({report.how for report in reports}))
    processes = tuple(process for report in reports for process in report.processes)
    return StacksReport(processes, ways, tuple(notices))
