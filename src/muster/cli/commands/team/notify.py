"""Notifications: `muster notify …`."""

from __future__ import annotations

import sys
import time
from typing import Annotated, get_args

import typer

from muster.cli.console import columns, say
from muster.cli.options import Json, Run, argument, option, print_json, print_result, seconds_of
from muster.cli.text import moment
from muster.cli.views.columns import Column, fit
from muster.client.connect import connect, connect_to_read
from muster.errors import UserError
from muster.wire.notifications.events import QUIET_S, USUAL
from muster.wire.notifications.receivers import ReceiverView, Runs

Name = Annotated[str, argument("NAME", "The receiver's name, as job files write it.")]
When = Annotated[
    str,
    option(
        "A,B,…", "When it: ends, starts, completes, fails, cancels, retries, hangs, nan.", "--when", show_default=True
    ),
]
Quiet = Annotated[str, option("TIME", "How long a run prints and logs nothing before it counts as hanging.", "--quiet")]
_USUAL = ",".join(USUAL)
_QUIET = f"{QUIET_S / 60:.0f}m"


def watch(
    run: Run,
    to: Annotated[str, argument("TO", "A receiver's name, or an address: https://…, mailto:ada@example.org.")],
    when: When = _USUAL,
    quiet: Quiet = _QUIET,
    as_json: Json = False,
) -> None:
    """Notify somebody about one run; `muster notify RUN TO` for short.

    \b
    Examples:
      muster notify @latest https://hooks.example.org/me
      muster notify @latest https://hooks.example.org/me --when fails,nan
    """
    made = connect().watch(run, to, _words(when), seconds_of("--quiet", quiet))
    say(f"{_target(made)} is notified when {made.run} {_when_text(made.when)}")
    if as_json:
        print_json(made)


def add(
    name: Name,
    address: Annotated[
        str, argument("ADDRESS", "https://…, slack+https://…, teams+https://…, ntfy+https://… or mailto:….")
    ],
    when: When = _USUAL,
    runs: Annotated[str, option("WHOSE", "Of which runs: mine, all, or named (in a job file).")] = "mine",
    quiet: Quiet = _QUIET,
    as_json: Json = False,
) -> None:
    """Add a receiver for your runs, for all runs, or for runs whose job file names it.

    Hooks of Slack, Teams and ntfy.sh are recognised by their host; for other hosts put slack+, teams+ or ntfy+
    before the address. A plain webhook gets JSON, signed with a secret that is printed once.

    \b
    Examples:
      muster notify add hook https://hooks.example.org/me
      muster notify add phone ntfy+https://ntfy.example.org/my-topic --when fails,hangs,nan
    """
    known = get_args(Runs)
    chosen: Runs | None = next((word for word in known if word == runs), None)
    if chosen is None:
        raise UserError(f"--runs {runs}: use {', '.join(known)}.")
    made = connect().add_receiver(name, address, _words(when), chosen, seconds_of("--quiet", quiet))
    whose = {"mine": "one of your runs", "all": "any run", "named": f"a run whose job says `notify: {name}`"}[chosen]
    say(f"{name} ({made.kind}) is notified when {whose} {_when_text(made.when)}; `muster notify test {name}` tries it")
    if as_json:
        print_json(made)
    elif made.secret:
        say("its messages are signed (Standard Webhooks) with this secret, which is not shown again:")
        print(made.secret)


def list_(
    run: Annotated[str | None, argument("RUN", "Receivers for this run; without it, those of the workspace.")] = None,
    as_json: Json = False,
) -> None:
    """List receivers, with the result of the last message to each.

    \b
    Examples:
      muster notify list
    """
    client = connect_to_read()
    found = client.receivers() if run is None else client.watches(run)
    now = time.time()
    if not found and not as_json:
        say("no receivers; `muster notify add NAME ADDRESS` makes one" if run is None else "nobody in particular")
        return
    heads = [Column("NAME", 6), Column("KIND", leaves=4), Column("ADDRESS", 24, leaves=2)]
    heads += [Column("RUNS", leaves=1), Column("WHEN", 14, leaves=3), Column("BY", leaves=5), Column("LAST", 32)]
    rows = [
        [item.name or "-", item.kind, item.address, item.runs, ",".join(item.when), item.owner or "", _last(item, now)]
        for item in found
    ]
    print_result(found, fit(heads, rows, columns(sys.stdout)), as_json)


def test(name: Name, as_json: Json = False) -> None:
    """Send a test message to a receiver, and print its answer.

    \b
    Examples:
      muster notify test hook
    """
    found = connect().test_receiver(name)
    if as_json:
        print_json(found)
    elif found.taken:
        say(f"{name} took it in {found.seconds:.1f} s: {found.answer}")
    if not found.taken:
        if not as_json:
            say(f"{name} did not take it: {found.answer}")
        raise typer.Exit(1)


def remove(name: Name, as_json: Json = False) -> None:
    """Remove a receiver; what is still on its way to it is dropped.

    \b
    Examples:
      muster notify remove hook
    """
    connect().remove_receiver(name)
    say(f"receiver {name} is removed")
    if as_json:
        print_json({"removed": name})


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _target(view: ReceiverView) -> str:
    return view.name or view.address


def _when_text(when: tuple[str, ...]) -> str:
    """Such as `ends, hangs or its loss is NaN`."""
    plain = {"cancels": "is cancelled", "retries": "is tried again", "nan": "its loss is NaN"}
    words = [plain.get(word, word) for word in when]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _last(item: ReceiverView, now: float) -> str:
    if item.last is None:
        return "-"
    last = item.last
    if last.taken_at is not None:
        return f"{last.event}: taken {moment(last.taken_at, now)}"
    if last.given_up:
        return f"{last.event}: given up: {last.answer}"
    return (
        f"{last.event}: {item.waiting} waiting, tried {last.tries}×: {last.answer}"
        if last.tries
        else f"{last.event}: on its way"
    )


COMMANDS = (watch, add, list_, test, remove)
