"""`muster logs`: what ranks print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

from muster.cli.console import Paint, is_terminal
from muster.cli.following.display import Display, JsonDisplay, PlainDisplay, TailDisplay, open_display
from muster.cli.following.follower import Screen
from muster.cli.following.lines import Merger
from muster.cli.following.log_names import is_build, log_of_rank, source_of
from muster.cli.following.state import RunState
from muster.cli.options import Json, Run, option, switch
from muster.cli.views.run import ref
from muster.client.api import Client
from muster.client.connect import connect
from muster.errors import UserError
from muster.wire.runs import RunView
from muster.wire.stream import LogPiece

Wanted = Callable[[LogPiece], bool]


def logs(
    run: Run,
    rank: Annotated[int | None, option("N", "Only this rank.", min=0)] = None,
    follow: Annotated[bool, switch("Follow until the run ends.", "--follow", "-f")] = False,
    attempt: Annotated[int | None, option("N", "An earlier attempt (default: the last one).", min=1)] = None,
    tail: Annotated[int | None, option("N", "Only the last N lines so far.", "--tail", "-n", min=0)] = None,
    raw: Annotated[bool, switch("The bytes of one rank, exactly as printed.", "--raw")] = False,
    as_json: Json = False,
) -> None:
    """Print the output of all ranks, each line with its rank, or of one.

    A progress bar shows as its last state; --raw gives every byte.

    \b
    Examples:
      muster logs -f @latest
      muster logs @latest --rank 1 --tail 50
      muster logs @latest --rank 0 --raw > rank0.txt
      muster logs @latest --json
    """
    client = connect()
    view = client.run(run)
    wanted = selection(view, rank, attempt)
    if raw:
        if tail is not None or as_json:
            other = "--json" if as_json else "--tail"
            raise UserError(f"--raw and {other} exclude each other.", "Give only one of them.")
        if rank is None and view.num_ranks > 1:
            raise UserError(f"--raw is for one rank, and the run has {view.num_ranks}.", "Choose one with --rank N.")
        _print_raw(client, view, wanted, follow)
    else:
        _print_lines(client, view, wanted, follow, tail, as_json)


def selection(view: RunView, rank: int | None, attempt: int | None) -> Wanted:
    """Which pieces of logs are wanted; refuses what the run does not have."""
    numbers = [entry.number for entry in view.attempts]
    if attempt is not None and attempt not in numbers:
        raise UserError(f"--attempt {attempt}: the run has no such attempt.", f"It has: {_listed(numbers)}.")
    known = {candidate.rank for entry in view.attempts for candidate in entry.ranks}
    if rank is not None and known and rank not in known:
        raise UserError(f"--rank {rank}: the run has no such rank.", f"It has: {_listed(sorted(known))}.")
    first = attempt if attempt is not None else max(numbers, default=0)
    log = None if rank is None else log_of_rank(view, rank, attempt)

    def wanted(piece: LogPiece) -> bool:
        if piece.attempt < first or (attempt is not None and piece.attempt != attempt):
            return False
        if rank is None:
            return True
        return piece.stream == log if log else source_of(piece.stream).number == rank

    return wanted


def _print_raw(client: Client, view: RunView, wanted: Wanted, follow: bool) -> None:
    out = sys.stdout.buffer
    for item in client.stream(view.id, follow=follow, metrics=False):
        piece = item.event
        if isinstance(piece, LogPiece) and wanted(piece) and not is_build(piece.stream):
            out.write(piece.data)
            out.flush()


def _print_lines(client: Client, view: RunView, wanted: Wanted, follow: bool, tail: int | None, as_json: bool) -> None:
    state = RunState.of(view)
    merger = Merger(color=Paint.of(sys.stdout).color and not as_json)
    follow = follow and not state.ended
    chosen: AbstractContextManager[Display]
    if as_json:
        chosen = nullcontext(JsonDisplay(sys.stdout, states=False))
    elif follow and is_terminal(sys.stdout):
        chosen = open_display(merger.pending, state, ref(view))
    else:
        chosen = nullcontext(PlainDisplay(sys.stdout, states=False, notes=True))
    with chosen as display:
        screen = Screen(display, state, merger, wanted)
        if tail is not None:
            screen.display = last = TailDisplay(sys.stdout, tail)
            for item in client.stream(view.id, follow=False, metrics=False):
                screen.show(item)
            if not follow:
                screen.finish()
            screen.display = display
            display.lines(list(last.kept))
        if tail is None or follow:
            for item in client.stream(view.id, cursor=screen.cursor, follow=follow):
                screen.show(item)
        screen.finish()


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none yet"
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
