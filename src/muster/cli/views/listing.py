"""The table of `muster ps`: its columns, and the order of runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import get_args

from muster.cli.console import Paint
from muster.cli.text import age, duration, moment, number
from muster.cli.views.columns import Column, fit
from muster.cli.views.metrics import diverged, figure, is_number
from muster.cli.views.movement import silence, silent_for
from muster.cli.views.queue_job import queue_job
from muster.errors import UserError
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.runs import Between, Progress, RunView
from muster.wire.serving.services import shown_command
from muster.wire.text import printable
from muster.wire.tracking import RunColumn, SummaryQuery, SummaryValue

Cell = Callable[[RunView, float], str]

_COLUMNS: Mapping[str, tuple[Column, Cell]] = {
    "run": (Column("RUN"), lambda view, now: view.id),
    "name": (Column("NAME", 8, leaves=2), lambda view, now: view.name or view.display_name or ""),
    "status": (Column("STATUS"), lambda view, now: view.status),
    "experiment": (Column("EXPERIMENT", 8, leaves=6), lambda view, now: view.experiment),
    "ranks": (Column("RANKS", leaves=5), lambda view, now: _ranks(view)),
    "created": (Column("AGE", leaves=3), lambda view, now: age(now - view.created_at)),
    "duration": (Column("DURATION", leaves=4), lambda view, now: run_time(view, now) or "-"),
    "started": (Column("STARTED"), lambda view, now: moment(view.started_at, now)),
    "ended": (Column("ENDED"), lambda view, now: moment(view.ended_at, now)),
    "user": (Column("USER", 8), lambda view, now: view.submitted_by or "-"),
    "compute": (Column("COMPUTE", 8), lambda view, now: view.compute),
    "tags": (Column("TAGS", 8), lambda view, now: ",".join(f"{key}={value}" for key, value in view.tags.items())),
    "progress": (Column("PROGRESS", 15, leaves=3), lambda view, now: progress_left(view, now) or "-"),
    "command": (Column("COMMAND", 12), lambda view, now: command_text(view.spec.get("command"))),
    "job": (Column("JOB"), lambda view, now: job.id if (job := queue_job(view)) else ""),
    "partition": (Column("PARTITION"), lambda view, now: job.partition if (job := queue_job(view)) else ""),
    "account": (Column("ACCOUNT"), lambda view, now: job.account if (job := queue_job(view)) else ""),
    "reason": (Column("REASON"), lambda view, now: job.reason if (job := queue_job(view)) else ""),
    "starts": (Column("STARTS"), lambda view, now: moment(view.starts_at, now) if view.starts_at else ""),
    "why": (Column("WHY", 16, leaves=1), lambda view, now: why(view, now)),
}
_WHERE = re.compile(r"^rank \d+ on [^\s:]+:? (?=\S)")
_QUEUE = ("job", "partition", "account", "reason", "starts")
WIDE = ("run", "name", "status", "experiment", "ranks", "created", "duration", "user", "compute", *_QUEUE, "why")
_USUAL = ("run", "name", "status", "experiment", "ranks", "created", "duration", "progress", "why")
_SUMMARIES: Mapping[str, SummaryValue] = {"best": "best", "min": "least", "max": "greatest"}
_SERVER_NAMES = {"user": "person", "compute": "cluster"}
_ORDERS: Mapping[str, Callable[[RunView, float], float | str | None]] = {
    "created": lambda view, now: view.created_at,
    "started": lambda view, now: view.started_at,
    "ended": lambda view, now: view.ended_at,
    "duration": lambda view, now: None if view.started_at is None else (view.ended_at or now) - view.started_at,
    "name": lambda view, now: view.name or view.display_name or "",
    "status": lambda view, now: view.status,
    "experiment": lambda view, now: view.experiment,
    "user": lambda view, now: view.submitted_by or "",
    "ranks": lambda view, now: view.num_ranks,
}


def listing(
    views: Sequence[RunView],
    paint: Paint,
    now: float,
    room: int | None = None,
    columns: Sequence[str] = (),
    sort: str | None = None,
) -> list[str]:
    """A line for each run, fitted to the width; with the sort column."""
    names = list(columns) or [name for name in _USUAL if _says_something(name, views)]
    by = (sort or "").removeprefix("-")
    if by and not columns and by not in _COLUMNS:
        names.insert(names.index("status") + 1, by)
    # Requested columns stay; default ones are left out first.
    chosen = [_column(name, stays=bool(columns)) for name in names]
    rows = [[printable(cell(view, now)) for _, cell in chosen] for view in views]
    lines = fit([column for column, _ in chosen], rows, room)
    return [paint(lines[0], "dim"), *(_painted(line, view, paint) for line, view in zip(lines[1:], views, strict=True))]


def parse_columns(text: str | None) -> list[str]:
    """Parse `run,loss,…`; a name that is not a column is a metric, a tag or an input."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in _COLUMNS and name.lower() in _COLUMNS:
            raise UserError(f"--columns {name}: columns are written small.", f"Write {name.lower()}.")
    return names


def unknown_columns(names: Sequence[str], views: Sequence[RunView]) -> str:
    """A message about names that no run has; empty where every name is known."""
    missing = [name for name in names if name not in _COLUMNS and not any(_value(view, name) for view in views)]
    if not missing or not views:
        return ""
    metrics = {metric for view in views for metric in view.metrics if not metric.startswith("node/")}
    near = get_close_matches(missing[0], [*_COLUMNS, *metrics], 1)
    known = (
        f"Columns: {', '.join(_COLUMNS)}; metrics: {', '.join(sorted(metrics)[:12]) or 'none'}; tag.NAME; input.NAME."
    )
    return f"none of these runs has a {missing[0]!r}. " + (f"Did you mean {near[0]!r}? " if near else "") + known


def summary_of(name: str) -> tuple[SummaryValue, str]:
    """Parse `best.loss`, `min.loss` and `max.loss`; any other name means a metric's last value."""
    kind, dot, metric = name.partition(".")
    return (_SUMMARIES[kind], metric) if dot and metric and kind in _SUMMARIES else ("last", name)


def summary_columns(names: Iterable[str]) -> dict[str, tuple[SummaryValue, str]]:
    """Those of the columns that show another value of a metric than its last."""
    return {name: found for name in names if name not in _COLUMNS and (found := summary_of(name))[0] != "last"}


def server_order(sort: str) -> SummaryQuery | None:
    """The server's parameters for this order; None: the server does not support it."""
    name, ascending = sort.removeprefix("-"), not sort.startswith("-")
    column: RunColumn | None = next(
        (item for item in get_args(RunColumn) if item == _SERVER_NAMES.get(name, name)), None
    )
    if column is not None:
        return SummaryQuery(sort=column, ascending=ascending)
    if name in _COLUMNS or name.startswith(("tag.", "tags.", "input.", "inputs.")):
        return None
    by, metric = summary_of(name)
    return SummaryQuery(metric=metric, by=by, ascending=ascending)


def in_order(views: Sequence[RunView], sort: str, now: float) -> list[RunView]:
    """Sorted by a column or a metric's last value, the least first (`-NAME`: the greatest); those without it last."""
    name = sort.removeprefix("-")
    order = _ORDERS.get(name) or partial(_metric, name=name)
    keyed = [(order(view, now), view) for view in views]
    with_key = [(key, view) for key, view in keyed if key is not None]
    with_key.sort(key=lambda item: item[0], reverse=sort.startswith("-"))
    return [*(view for _, view in with_key), *(view for key, view in keyed if key is None)]


def run_time(view: RunView, now: float) -> str:
    """How long a run has run; empty before its start."""
    return "" if view.started_at is None else duration((view.ended_at or now) - view.started_at)


def why(view: RunView, now: float) -> str:
    """Why a run waits, stalls, or did not complete."""
    if view.verdict and view.status != states.COMPLETED:
        # The cause comes first where there is little room; `show` names the rank.
        return _WHERE.sub("", first_line(view.verdict.message))
    if view.starts_between is not None:
        # First, so that a long reason cannot cut it off.
        return f"starts {between(view.starts_between, now)}: {first_line(view.reason)}"
    return first_line(view.reason) or silent_for(view.moved_at, now) or diverged(view.metrics)


def between(given: Between | None, now: float) -> str | None:
    if given is None:
        return None
    return span(given.low_at - now, given.high_at - now)


def span(low_s: float, high_s: float) -> str:
    """Such as `in 5m to 2h`, `within 8s`: as exact as a forecast is."""
    low, high = age(low_s), age(max(1.0, high_s))
    if low_s < 1:
        return f"within {high}"
    return f"in {low}" if low == high else f"in {low} to {high}"


def first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def progress_text(given: Progress | None) -> str | None:
    if given is None or given.done is None:
        return None
    of = f" of {number(given.total)}" if given.total else ""
    return f"{number(given.done)}{of} {given.unit or ''}".rstrip()


def progress_left(view: RunView, now: float) -> str:
    """Such as `40 of 100 steps, 5m to 7m left`; for a stalled run without the remaining time."""
    text = progress_text(view.progress) or ""
    if not text or view.ends_between is None or view.status != states.RUNNING or silence(view.moved_at, now):
        return text
    low, high = (age(max(0.0, end - now)) for end in (view.ends_between.low_at, view.ends_between.high_at))
    return f"{text}, {high} left" if low == high else f"{text}, {low} to {high} left"


def command_text(command: Json) -> str:
    """A job's command on one line."""
    listed = shown_command([str(word) for word in command]) if isinstance(command, list) else ()
    words = command if isinstance(command, str) else " ".join(listed)
    return " ".join(words.split())


def _says_something(name: str, views: Sequence[RunView]) -> bool:
    """Whether a default column is informative: not a name that repeats the id, nor an only experiment."""
    if name == "name":
        return any(view.name or (view.display_name and not view.id.startswith(view.display_name)) for view in views)
    if name == "experiment":
        return len({view.experiment for view in views}) > 1
    if name == "ranks":
        return any(view.num_ranks > 1 for view in views)
    if name == "progress":
        return any(view.progress and view.status == states.RUNNING for view in views)
    if name in _QUEUE:
        return any(_COLUMNS[name][1](view, 0.0) for view in views)
    return True


def wide(views: Sequence[RunView]) -> list[str]:
    """Every informative column, with those of the clusters' own queues."""
    return [name for name in WIDE if _says_something(name, views)]


def _column(name: str, stays: bool) -> tuple[Column, Cell]:
    if name in _COLUMNS:
        column, cell = _COLUMNS[name]
        return (Column(column.title, column.least) if stays else column), cell
    return Column(name.upper()), lambda view, now: _value(view, name) or "-"


def _value(view: RunView, name: str) -> str:
    """A metric's last value, a tag or an input by `tag.NAME` or `input.NAME`; empty where the run has none."""
    kind, dot, rest = name.partition(".")
    if name in view.metrics:
        return figure(name, view.metrics[name])
    if dot and kind in ("tag", "tags"):
        return view.tags.get(rest, "")
    inputs = view.spec.get("inputs")
    if dot and kind in ("input", "inputs") and isinstance(inputs, Mapping) and rest in inputs:
        return input_text(inputs[rest])
    return ""


def input_text(value: Json) -> str:
    """An input's value, or the path of its data."""
    return str(value.get("path") or value.get("type")) if isinstance(value, Mapping) else str(value)


def _metric(view: RunView, now: float, name: str) -> float | None:
    value = view.metrics.get(name)
    return float(value) if is_number(value) else None


def _ranks(view: RunView) -> str:
    return f"{view.num_nodes}x{view.num_ranks // max(1, view.num_nodes)}"


def _painted(line: str, view: RunView, paint: Paint) -> str:
    """Colour the state, as the last step, so that widths count only visible characters."""
    before, found, after = line.partition(f"  {view.status}")
    return f"{before}  {paint.status(view.status)}{after}" if found else line
