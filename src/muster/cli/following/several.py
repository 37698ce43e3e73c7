"""Waits for several runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

from muster.cli import exits
from muster.cli.console import Paint, columns, patience, print_lines, say
from muster.cli.options import print_json
from muster.cli.views.run import headline, verdict
from muster.client.api import Client
from muster.wire import states
from muster.wire.runs import RunView
from muster.wire.states import RunStatus
from muster.wire.stream import RunEnded


def ended(client: Client, view: RunView) -> RunView:
    """Wait for a run; returns it once it has ended."""
    if view.status not in states.TERMINAL:
        for item in client.stream(view.id, logs=False, metrics=False):
            if isinstance(item.event, RunEnded):
                break
    return client.run(view.id)


def show_end(view: RunView) -> None:
    paint = Paint.of(sys.stdout)
    print_lines([headline(view, paint, time.time()), *verdict(view, paint, columns(sys.stdout))])


def worst(found: set[RunStatus]) -> int:
    """The exit code for several ended runs: that of the worst."""
    if found <= {states.COMPLETED}:
        return 0
    return exits.EXIT_FAILED if found - {states.COMPLETED, states.CANCELED} else exits.EXIT_INTERRUPTED


def follow_several(client: Client, views: Sequence[RunView], *, quiet: bool, as_json: bool) -> int:
    """Wait until all have ended, and show those that did not complete; returns the exit code."""
    done: list[RunView] = []
    patient = _Patient(client, [view.id for view in views])
    with patience(f"waiting for {len(views)} runs"):
        for view in views:
            done.append(patient.ended(view))
            if done[-1].status != states.COMPLETED and not (as_json or quiet):
                show_end(done[-1])
    if as_json:
        print_json(done)
    else:
        counted = Counter(view.status for view in done)
        say(f"{len(done)} runs: {', '.join(f'{number} {status}' for status, number in counted.most_common())}")
    return worst({view.status for view in done})


class _Patient:
    """Waits for runs; Ctrl-C cancels all of them, a second one kills them, a third gives up waiting."""

    def __init__(self, client: Client, runs: Sequence[str]) -> None:
        self._client = client
        self._runs = runs
        self._pressed = 0

    def ended(self, view: RunView) -> RunView:
        while True:
            try:
                return ended(self._client, view)
            except KeyboardInterrupt:
                self._pressed += 1
                if self._pressed > 2:
                    raise
                force = self._pressed == 2
                say("Killing them …" if force else f"Cancelling {len(self._runs)} runs. Ctrl-C again kills them.")
                self._client.cancel_runs(self._runs, force=force)
