"""Arguments and options that several commands share, and the completion of run names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer

from muster.cli.console import print_lines
from muster.cli.text import parse_duration, shorten
from muster.client.connect import connect
from muster.errors import UserError
from muster.wire.codec import to_json
from muster.wire.runs import RunView

COMPLETION_LIMIT = 50
ORDERS = ("created", "started", "ended", "duration")


def argument(metavar: str, help: str, **more: Any) -> Any:
    """An argument of a command."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **more)


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """An option that takes a value."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def switch(help: str, *names: str) -> Any:
    """A flag."""
    return typer.Option(*names, help=help, show_default=False)


def complete_runs(incomplete: str) -> Iterator[tuple[str, str]]:
    """Runs of a running server; pressing Tab never starts a server, nor prints errors."""
    try:
        views = connect(start=False).runs(limit=COMPLETION_LIMIT)
    except Exception:
        return
    yield from (found for found in run_words(views) if found[0].startswith(incomplete))


def complete_tags(incomplete: str) -> Iterator[str]:
    """Tags that runs have, as NAME=VALUE."""
    try:
        views = connect(start=False).runs(limit=COMPLETION_LIMIT)
    except Exception:
        return
    words = dict.fromkeys(f"{name}={value}" for view in views for name, value in view.tags.items())
    yield from (word for word in words if word.startswith(incomplete))


def complete_files(ctx: Any, incomplete: str) -> Iterator[str]:
    """Files and folders of the run on the command line."""
    try:
        paths = [file.path for file in connect(start=False).files(ctx.params["run"], checkpoints=True)]
    except Exception:
        return
    yield from (word for word in path_words(paths, incomplete))


def complete_metrics(ctx: Any, incomplete: str) -> Iterator[str]:
    """Metrics of the run on the command line; those of nodes come last."""
    try:
        names = connect(start=False).run(ctx.params["run"]).metrics
    except Exception:
        return
    yield from (name for name in metric_words(names) if name.startswith(incomplete))


def complete_orders(incomplete: str) -> Iterator[str]:
    """What runs can be sorted by: metrics that some have, and times."""
    try:
        views = connect(start=False).runs(limit=COMPLETION_LIMIT)
    except Exception:
        return
    names = [name for name in metric_words({name for view in views for name in view.metrics}) if "/" not in name]
    yield from (name for name in [*names, *ORDERS] if name.startswith(incomplete))


def metric_words(names: Iterable[str]) -> list[str]:
    """Metrics in a useful order: those of the script first."""
    return sorted(names, key=lambda name: (name.startswith("node/"), name))


def path_words(paths: Iterable[str], incomplete: str) -> Iterator[str]:
    """Completions of a path: files, and folders with a slash, one level at a time."""
    depth = incomplete.count("/")
    found = {
        "/".join(parts[: depth + 1]) + ("/" if len(parts) > depth + 1 else "")
        for parts in (path.split("/") for path in paths)
        if len(parts) > depth
    }
    yield from (word for word in sorted(found) if word.startswith(incomplete))


def run_words(views: Sequence[RunView]) -> Iterator[tuple[str, str]]:
    """Ids and names of runs, each with a short description."""
    if views:
        yield "@latest", "the newest run"
    for view in views:
        about = f"{view.status} {shorten(view.display_name or '', 30)}".rstrip()
        yield view.id, about
        if view.name and view.name != view.id:
            yield view.name, about


RUN_HELP = "A run's id, the beginning of it, its name, or @latest."

Run = Annotated[str, argument("RUN", RUN_HELP, autocompletion=complete_runs)]
Runs = Annotated[list[str], argument("RUN", RUN_HELP, autocompletion=complete_runs)]
Json = Annotated[bool, switch("Print JSON for programs.", "--json")]


def seconds_of(name: str, text: str) -> int:
    """Parse the duration of an option."""
    seconds = parse_duration(text)
    if seconds is None:
        raise UserError(f"{name} {text}: give seconds or a time above zero, such as 90, 15m, 1h30m or 2d.")
    return seconds


def print_json(value: object) -> None:
    """Print a message, or a list or mapping of messages, as JSON."""
    print(json.dumps(to_json(value), indent=2, ensure_ascii=False))


def print_result(value: object, lines: Iterable[str], as_json: bool) -> None:
    """Print a command's result: lines for people, or JSON for programs."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)
