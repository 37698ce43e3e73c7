"""Showing, ending and retrying runs: `show`, `wait`, `cancel`, `retry`, `rm`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Annotated

import typer

from muster.cli import exits
from muster.cli.console import Paint, patience, print_lines, say
from muster.cli.console import columns as terminal_columns
from muster.cli.following.several import ended, show_end, worst
from muster.cli.interrupts import submitted
from muster.cli.lazy import find
from muster.cli.options import (
    Json,
    Run,
    Runs,
    argument,
    complete_tags,
    option,
    print_json,
    print_result,
    seconds_of,
    switch,
)
from muster.cli.overrides import parse_pairs
from muster.cli.text import size
from muster.cli.views.run import everything, ref
from muster.client.api import Client
from muster.client.connect import connect, connect_to_read
from muster.client.provenance import read
from muster.errors import Conflict, UserError
from muster.wire import states
from muster.wire.runs import RunView
from muster.wire.stream import LogQuery
from muster.wire.tracking import SummaryQuery


def show(run: Run, as_json: Json = False) -> None:
    """Show a run: states, attempts, ranks, verdict, metrics, files.

    \b
    Examples:
      muster show @latest
      muster show 4f2c --json
    """
    client = connect_to_read()
    view = client.run(run)
    if as_json:
        print_json(view)
        return
    origin = read(client, view.id, [file.path for file in view.files])
    logged = client.summaries(SummaryQuery(run=(view.id,)), 1)[0].metrics if view.metrics else {}
    room = terminal_columns(sys.stdout)
    print_lines(everything(view, Paint.of(sys.stdout), time.time(), room, origin, logged))


def wait(
    runs: Runs,
    timeout: Annotated[str | None, option("TIME", "Give up after this long: 90, 15m, 1h.")] = None,
    as_json: Json = False,
) -> None:
    """Wait until runs have ended.

    The exit code is 0 when all completed, 1 when one failed, 130 when one was cancelled, 124 when the time
    was up.

    \b
    Examples:
      muster wait @latest
      muster wait 4f2c 90ab --timeout 1h
    """
    seconds = None if timeout is None else seconds_of("--timeout", timeout)
    client = connect_to_read()
    waited = [client.run(run) for run in runs]
    done: list[RunView] = []
    try:
        with _deadline(seconds):
            for view in waited:
                done.append(ended(client, view))
                if not as_json:
                    show_end(done[-1])
    except _TimeIsUp:
        say(f"the time is up; still active: {', '.join(view.id for view in waited[len(done) :])}")
        raise typer.Exit(exits.EXIT_TIMEOUT) from None
    if as_json:
        print_json(done)
    raise typer.Exit(worst({view.status for view in done}))


def cancel(
    runs: Runs,
    force: Annotated[bool, switch("Kill at once, without the 30 seconds.", "--force")] = False,
    as_json: Json = False,
) -> None:
    """Cancel runs: ranks get SIGTERM, then 30 seconds; --force kills.

    \b
    Examples:
      muster cancel @latest
      muster cancel 4f2c --force
    """
    done = connect().cancel_runs(runs, force=force)
    if as_json:
        print_json(done)
        return
    for run in done:
        if run.ended_before:
            say(f"{run.id} has ended already: {run.status}")
        else:
            print(f"{run.id} {'is cancelled' if run.status in states.TERMINAL else 'is being cancelled'}")


def retry(
    runs: Runs,
    detach: Annotated[bool, switch("Return at once.", "--detach", "-d")] = False,
    quiet: Annotated[bool, switch("Print only the summary.", "--quiet", "-q")] = False,
    as_json: Json = False,
) -> None:
    """Retry runs that failed or were cancelled, from the last checkpoint.

    One run is followed to its end, as `muster run` does; several are not.

    \b
    Examples:
      muster retry @latest
      muster retry @latest --detach
    """
    client = connect()
    views = [client.run(run) for run in runs]
    for view in views:
        if view.status not in states.TERMINAL:
            raise Conflict(f"{view.id} is {view.status}; only a run that has ended can be retried.")
    follows = len(views) == 1 and not detach
    cursor = _end_of(client, views[0]) if follows else None
    started = [submitted(client, partial(client.retry, view.id), lambda again: None) for view in views]
    for again in started:
        newest = next(iter(again.checkpoints), None)
        start = f"resumes from {newest.name}" if newest else "starts from the beginning"
        say(f"{again.id}: attempt {len(again.attempts) + 1} {start}")
    if follows:
        follow = find("following.follower:follow_to_end")
        raise typer.Exit(int(follow(client, started[0], quiet=quiet, as_json=as_json, cursor=cursor)))
    print_result(started, [f"{again.id} {again.status}" for again in started], as_json)


def rm(runs: Runs, yes: Annotated[bool, switch("Do not ask.", "--yes", "-y")] = False, as_json: Json = False) -> None:
    """Remove ended runs with their logs, metrics and outputs.

    \b
    Examples:
      muster rm 4f2c
      muster rm brave-otter calm-lynx --yes
    """
    client = connect()
    views = {view.id: view for view in [client.run(run) for run in runs]}
    active = [ref(view) for view in views.values() if view.status not in states.TERMINAL]
    if active:
        raise Conflict(
            f"still active: {', '.join(active)}; only ended runs are removed.",
            f"End it first: muster cancel {active[0]}",
        )
    if not yes:
        _ask(["  ".join(dict.fromkeys((view.id, ref(view), view.status))) for view in views.values()])
    for number, view in enumerate(views.values(), 1):
        of = f" ({number} of {len(views)})" if len(views) > 1 else ""
        with patience(f"removing {view.id}{of}: {size(sum(file.size for file in view.files))}"):
            client.remove(view.id)
        if not as_json:
            print(f"{view.id} is removed")
    if as_json:
        print_json({"removed": list(views)})


def tag(
    run: Run,
    tags: Annotated[list[str], argument("K=V|K=", "Tags to set; K= removes one.", autocompletion=complete_tags)],
    as_json: Json = False,
) -> None:
    """Set tags of a run, or remove them.

    \b
    Examples:
      muster tag @latest team=vision best=
    """
    changes = {name: value or None for name, value in parse_pairs("tag", tags).items()}
    view = connect().update_run(run, tags=changes)
    print_result(view, [", ".join(f"{name}={value}" for name, value in view.tags.items()) or "no tags"], as_json)


def _end_of(client: Client, view: RunView) -> str | None:
    """The cursor at the end of an ended run's stream."""
    latest = list(client.stream(view.id, follow=False, metrics=False, query=LogQuery(tail=0)))
    return latest[-1].cursor if latest else None


def _ask(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask whether to remove.", "Say it with --yes.")
    for name in names:
        say(f"  {name}")
    whom = "it" if len(names) == 1 else "them"
    if not typer.confirm(f"Remove {whom}, with logs, metrics and outputs?", default=False):
        raise typer.Exit(exits.EXIT_FAILED)


class _TimeIsUp(Exception):
    pass


@contextmanager
def _deadline(seconds: int | None) -> Iterator[None]:
    """Interrupt the wait after a timeout."""
    if seconds is None:
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
