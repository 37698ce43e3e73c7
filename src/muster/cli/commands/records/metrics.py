"""`muster metrics`: what a run logged, with its history."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

from muster.cli.console import Paint, columns, print_lines, say
from muster.cli.options import Json, Run, argument, complete_metrics, option, print_json, switch
from muster.cli.text import counted, moment
from muster.cli.views.columns import Column, fit
from muster.cli.views.metrics import figure
from muster.client.api import Client
from muster.client.connect import connect_to_read
from muster.client.history import MetricRecord, records
from muster.errors import NotFound, UserError
from muster.wire.tracking import MetricSummary

_SHOWN = 20


def metrics(
    run: Run,
    name: Annotated[
        str | None,
        argument("NAME", "A metric, for its history (default: a line for each).", autocompletion=complete_metrics),
    ] = None,
    rank: Annotated[int | None, option("N", "Only what this rank logged.", min=0)] = None,
    attempt: Annotated[int | None, option("N", "Only what this attempt logged.", min=1)] = None,
    tail: Annotated[int | None, option("N", "Only the last N values.", "--tail", "-n", min=1)] = None,
    as_csv: Annotated[bool, switch("Every value as CSV: name, step, time, rank, attempt, value.", "--csv")] = False,
    as_json: Json = False,
) -> None:
    """Print what a run logged: a line for each metric, or one metric's history.

    --csv and --json print every value with its step, its time (seconds of the epoch), its rank and its attempt. On a
    terminal a history shows its last 20 values.

    \b
    Examples:
      muster metrics @latest
      muster metrics @latest loss
      muster metrics @latest loss --csv > loss.csv
      muster metrics @latest --json
    """
    if as_csv and as_json:
        raise UserError("--csv and --json exclude each other.", "Give only one of them.")
    client = connect_to_read()
    run_id = client.run(run).id
    if name is None and not (as_csv or as_json):
        _print_summaries(_of(client.metric_summaries(run_id), rank, attempt))
        return
    found = records(client.metric_series(run_id, name), rank, attempt)
    if name is not None and not found:
        raise unknown_metric(client, run_id, name)
    if as_json:
        print_json([record._asdict() for record in found[-tail if tail else 0 :]])
    elif as_csv:
        _print_csv(found[-tail if tail else 0 :])
    else:
        _print_history(found, tail)


def _of(found: Sequence[MetricSummary], rank: int | None, attempt: int | None) -> list[MetricSummary]:
    return [one for one in found if rank in (None, one.rank) and attempt in (None, one.attempt)]


def _print_summaries(found: Sequence[MetricSummary]) -> None:
    if not found:
        say("no metrics; a script logs them with `Run.get_context().log(NAME, VALUE, step=STEP)`")
        return
    print_lines(summary_lines(found, Paint.of(sys.stdout), columns(sys.stdout)))


def summary_lines(found: Sequence[MetricSummary], paint: Paint, room: int | None) -> list[str]:
    """A line for each series. Pure."""
    several = len({one.attempt for one in found}) > 1
    shown = [
        Column("METRIC", 10), Column("RANK"), Column("ATTEMPT"), Column("VALUES", leaves=3), Column("STEP", leaves=2),
        Column("LAST"), Column("LEAST", leaves=4), Column("GREATEST", leaves=4),
    ]  # fmt: skip
    rows = [
        [
            one.name,
            "-" if one.rank is None else str(one.rank),
            str(one.attempt),
            f"{one.count:,}",
            "-" if one.last_step is None else f"{one.last_step:g}",
            figure(one.name, one.last),
            "-" if one.least is None else figure(one.name, one.least),
            "-" if one.greatest is None else figure(one.name, one.greatest),
        ]
        for one in sorted(found, key=lambda one: (one.name.startswith("node/"), one.name, one.attempt, one.rank or 0))
    ]
    if not several:
        del shown[2]
        rows = [row[:2] + row[3:] for row in rows]
    head, *lines = fit(shown, rows, room)
    return [paint(head, "dim"), *lines]


def _print_history(found: Sequence[MetricRecord], tail: int | None) -> None:
    room = columns(sys.stdout)
    # Ranks send what they logged in batches: in the order in which these came, time would jump.
    found = sorted(found, key=lambda record: record.time)
    most = tail or (_SHOWN if room is not None else len(found))
    print_lines(history_lines(found[-most:], Paint.of(sys.stdout), time.time(), room))
    if len(found) > most:
        say(f"{counted(len(found) - most, 'earlier value')}: -n N shows more of them, --csv all")


def history_lines(found: Sequence[MetricRecord], paint: Paint, now: float, room: int | None) -> list[str]:
    """A line for each value. Pure."""
    rows = [
        [
            "-" if record.step is None else f"{record.step:g}",
            moment(record.time, now),
            "-" if record.rank is None else str(record.rank),
            str(record.attempt),
            figure(record.name, record.value),
        ]
        for record in found
    ]
    titles = [Column("STEP"), Column("TIME"), Column("RANK"), Column("ATTEMPT", leaves=1), Column("VALUE", 8)]
    head, *lines = fit(titles, rows, room)
    return [paint(head, "dim"), *lines]


def _print_csv(found: Sequence[MetricRecord]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(MetricRecord._fields)
    # A step that was logged as 10 is shown as 10, not 10.0.
    writer.writerows(
        record._replace(step=int(record.step)) if record.step is not None and record.step.is_integer() else record
        for record in found
    )


def unknown_metric(client: Client, run_id: str, name: str) -> NotFound:
    """The error for a metric that a run does not have."""
    known = sorted({one.name for one in client.metric_summaries(run_id)})
    near = get_close_matches(name, known, 1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return NotFound(f"the run {run_id} logged no {name!r}.", f"{meant}It logged: {', '.join(known[:20]) or 'nothing'}.")
