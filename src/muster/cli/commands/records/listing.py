"""`muster ps`: the list of runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

import typer

from muster.cli.console import Paint, columns, notice, print_lines, say
from muster.cli.options import Json, complete_orders, complete_tags, option, print_json, switch
from muster.cli.text import parse_duration
from muster.cli.views.listing import (
    in_order,
    listing,
    parse_columns,
    server_order,
    summary_columns,
    unknown_columns,
    wide,
)
from muster.client.connect import NothingKept, connect_to_read
from muster.errors import UserError
from muster.wire import states
from muster.wire.runs import RunView
from muster.wire.states import RunStatus
from muster.wire.tracking import SummaryQuery

_ONE_BY_ONE = 200
"""For more runs than this, all are fetched at once and sorted here."""

_Sort = Annotated[
    str | None,
    option(
        "[-]NAME",
        "By a metric or a column, smallest first; -NAME: largest first.",
        autocompletion=complete_orders,
    ),
]


def ps(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many to list.")] = 20,
    everything: Annotated[bool, switch("List all of them, checks of clusters too.", "--all", "-a")] = False,
    status: Annotated[str | None, option("STATE", "Only runs in this state.")] = None,
    experiment: Annotated[str | None, option("NAME", "Only runs of this experiment.")] = None,
    tag: Annotated[
        list[str] | None, option("K=V|K", "Only runs with this tag; repeatable.", autocompletion=complete_tags)
    ] = None,
    since: Annotated[str | None, option("TIME", "Only runs submitted since: 1d, 12h, or 2026-01-31.")] = None,
    sort: _Sort = None,
    shown: Annotated[
        str | None, option("A,B,…", "These columns: run, status, loss, tag.team, input.lr …", "--columns")
    ] = None,
    everything_known: Annotated[
        bool, switch("More columns, and none cut: user, compute, and the job in Slurm's queue.", "--wide", "-w")
    ] = False,
    as_json: Json = False,
) -> None:
    """List runs, newest first.

    On a terminal the table fits its width; in a pipe nothing is cut. Columns are run, name, status, experiment, ranks,
    created, started, ended, duration, user, compute, job, partition, account, reason, starts, tags, progress, command
    and why; tag.NAME, input.NAME, and any metric by its name: its last value; best.NAME, min.NAME, max.NAME.

    \b
    Examples:
      muster ps
      muster ps --status Running
      muster ps --wide
      muster ps --since 1d --sort loss -n 5
      muster ps --sort best.loss --columns run,status,loss,best.loss
      muster ps --tag team=vision --columns run,status,duration,tag.team
      muster ps --experiment imagenet --all --json
    """
    wanted = _Wanted(experiment, _state(status), _since(since), tuple(tag or ()))
    names = parse_columns(shown)
    now = time.time()
    views, total = _load(wanted, None if everything else limit, sort, now)
    if not as_json:
        views = _with_summaries(views, names or [(sort or "").removeprefix("-")])
    if text := unknown_columns(names, views):
        raise UserError(f"--columns: {text}")
    if as_json:
        print_json(views)
    elif views:
        _print(views, names, now, everything_known, sort)
    if total > len(views):
        say(f"{total - len(views):,} more: `muster ps -n {min(total, max(100, 5 * limit))}`, or --all")


def _print(
    views: Sequence[RunView], names: Sequence[str], now: float, everything_known: bool, sort: str | None
) -> None:
    if sort and not names and (text := unknown_columns([sort.removeprefix("-")], views)):
        notice(f"--sort: {text}")
        sort = None
    room = None if everything_known else columns(sys.stdout)
    chosen = wide(views) if everything_known and not names else names
    print_lines(listing(views, Paint.of(sys.stdout), now, room, chosen, sort))


@dataclass(frozen=True)
class _Wanted:
    """Which runs are listed."""

    experiment: str | None
    status: RunStatus | None
    since: float | None
    tags: Sequence[str]


def _load(wanted: _Wanted, most: int | None, sort: str | None, now: float) -> tuple[list[RunView], int]:
    """Sorted runs, and how many there are in all; prints why where there are none."""
    try:
        client = connect_to_read()
    except NothingKept as error:
        say(f"no runs: {error.message}")
        return [], 0
    experiment, status, since, tags = wanted.experiment, wanted.status, wanted.since, wanted.tags
    order = server_order(sort) if sort and most is not None and most <= _ONE_BY_ONE else None
    if most is not None and (order is not None or not sort):
        found, total = client.some_runs(
            1 if order else most, experiment, status, since=since, tags=tags, checks=bool(experiment)
        )
    else:
        found = client.runs(None, experiment, status, since=since, tags=tags)
        total = len(found)
    if order is not None:
        states_ = (status,) if status else ()
        query = replace(order, experiment=experiment, status=states_, since=since, tag=tuple(tags), name=("-",))
        found = [client.run(item.id) for item in client.summaries(query, most)]
    elif sort:
        found = in_order(found, sort, now)[:most]
    if not found:
        is_filtered = wanted != _Wanted(None, None, None, ())
        say("no runs" + (" like that" if is_filtered else " yet; `muster run train.py` starts one"))
    return found, total


def _with_summaries(views: Sequence[RunView], names: Sequence[str]) -> list[RunView]:
    """The runs with the best, least and greatest values that columns need, besides the last ones."""
    wanted = summary_columns(names)
    if not wanted or not views:
        return list(views)
    metrics = tuple(sorted({metric for _, metric in wanted.values()}))
    found = connect_to_read().summaries(SummaryQuery(run=tuple(view.id for view in views), name=metrics), len(views))
    known = {item.id: item.metrics for item in found}
    more = {
        view.id: {
            name: getattr(known[view.id][metric], by)
            for name, (by, metric) in wanted.items()
            if metric in known.get(view.id, {})
        }
        for view in views
    }
    return [replace(view, metrics={**view.metrics, **more[view.id]}) for view in views]


def _state(text: str | None) -> RunStatus | None:
    known: dict[str, RunStatus] = {state.lower(): state for state in states.ALL}
    if text is not None and text.lower() not in known:
        raise UserError(f"--status {text}: there is no such state.", f"States: {', '.join(states.ALL)}.")
    return None if text is None else known[text.lower()]


def _since(text: str | None) -> float | None:
    """Parse a time, or an age."""
    if text is None:
        return None
    if (seconds := parse_duration(text)) is not None:
        return time.time() - seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UserError(
            f"--since {text}: give how long ago, such as 15m, 12h or 1d, or a time, such as 2026-01-31."
        ) from None
