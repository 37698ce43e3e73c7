"""`muster logs`: what ranks print."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from muster.cli.console import Paint, is_terminal, say
from muster.cli.following.display import Display, JsonDisplay, PlainDisplay, open_display
from muster.cli.following.follower import Screen
from muster.cli.following.lines import Merger
from muster.cli.following.log_names import log_of_rank
from muster.cli.following.state import RunState
from muster.cli.options import Json, Run, option, switch
from muster.cli.text import parse_duration
from muster.cli.views.run import ref
from muster.client.api import Client
from muster.client.calls import checking
from muster.client.connect import connect_to_read
from muster.defaults import GROWING_S
from muster.errors import NotFound, UserError
from muster.wire.runs import RunView
from muster.wire.stream import LogPiece, LogQuery


def logs(
    run: Run,
    rank: Annotated[int | None, option("N", "Only this rank.", min=0)] = None,
    follow: Annotated[bool, switch("Follow until the run ends.", "--follow", "-f")] = False,
    attempt: Annotated[int | None, option("N", "An earlier attempt (default: the last one).", min=1)] = None,
    tail: Annotated[int | None, option("N", "Only the last N lines so far.", "--tail", "-n", min=0)] = None,
    head: Annotated[int | None, option("N", "Only the first N lines.", "--head", min=0)] = None,
    lines: Annotated[str | None, option("FIRST:LAST", "Only these lines, such as 100:120 or 100:.")] = None,
    since: Annotated[str | None, option("TIME", "Only what came since: 90, 15m, 1h, or 2026-01-31T12:00.")] = None,
    grep: Annotated[
        str | None, option("PATTERN", "Only lines that match a regular expression.", "--grep", "-g")
    ] = None,
    in_bytes: Annotated[
        str | None, option("FIRST:LAST", "Only these bytes of one rank, as printed.", "--bytes")
    ] = None,
    raw: Annotated[bool, switch("The bytes of one rank, exactly as printed.", "--raw")] = False,
    as_json: Json = False,
) -> None:
    """Print the output of all ranks, each line with its rank, or of one rank.

    Lines come in the order in which they reached the server, which finds the wanted ones. A progress bar shows as its
    last state; --raw gives every byte.

    \b
    Examples:
      muster logs -f @latest
      muster logs @latest --rank 1 --tail 50
      muster logs @latest --since 10m --grep "loss|Error"
      muster logs @latest --lines 100:120
      muster logs @latest --rank 0 --raw > rank0.txt
      muster logs @latest --json
    """
    first_line, last_line = _range("--lines", lines, least=1)
    if sum(option is not None for option in (tail, head, lines, in_bytes)) > 1:
        raise UserError("--tail, --head, --lines and --bytes exclude each other.", "Give only one of them.")
    if follow and (head is not None or lines is not None or in_bytes is not None):
        raise UserError("--follow is for what is still to come.", "Leave out --head, --lines or --bytes.")
    if last_line is not None:
        head = max(0, last_line - (first_line or 1) + 1)
    client = connect_to_read()
    view = client.run(run)
    with checking():
        query = replace(_since(since), tail=tail, head=head, first_line=first_line, grep=grep)
    query = selection(view, rank, attempt, query)
    if not raw and in_bytes is None:
        _print_lines(client, view, query, follow, as_json)
        return
    if as_json:
        raise UserError("--json prints lines, --raw and --bytes print bytes.", "Give only one of them.")
    if rank is None and view.num_ranks > 1:
        option_given = "--raw" if raw else "--bytes"
        raise UserError(
            f"{option_given} is for one rank, and the run has {view.num_ranks}.", "Choose one with --rank N."
        )
    if in_bytes is not None:
        _print_bytes(client, view, rank or 0, attempt, *_range("--bytes", in_bytes, least=0))
    else:
        _print_raw(client, view, replace(query, rank=rank or 0), follow)


def selection(view: RunView, rank: int | None, attempt: int | None, query: LogQuery) -> LogQuery:
    """The query for a rank and an attempt; refuses what the run does not have."""
    numbers = [entry.number for entry in view.attempts]
    if attempt is not None and attempt not in numbers:
        raise UserError(f"--attempt {attempt}: the run has no such attempt.", f"It has: {_listed(numbers)}.")
    known = {candidate.rank for entry in view.attempts for candidate in entry.ranks}
    if rank is not None and known and rank not in known:
        raise UserError(f"--rank {rank}: the run has no such rank.", f"It has: {_listed(sorted(known))}.")
    newest = max(numbers, default=None) if attempt is None else None
    return replace(query, rank=rank, attempt=attempt, from_attempt=newest)


def _print_bytes(
    client: Client, view: RunView, rank: int, attempt: int | None, first: int | None, last: int | None
) -> None:
    """Print a range of bytes of a rank's log, counted from 0, including the last one."""
    log = log_of_rank(view, rank, attempt)
    if log is None:
        raise NotFound(f"rank {rank} has printed nothing yet.", f"`muster logs -f {ref(view)}` waits for it.")
    is_earlier = attempt is not None and attempt != max(entry.number for entry in view.attempts)
    path = f"attempts/{attempt}/{log}" if is_earlier else log
    begin = first or 0
    length = None if last is None else max(0, last - begin + 1)
    for piece in client.file_pieces(view.id, path, begin, length):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _print_raw(client: Client, view: RunView, query: LogQuery, follow: bool) -> None:
    out = sys.stdout.buffer
    for item in client.stream(view.id, follow=follow, metrics=False, query=query):
        if isinstance(item.event, LogPiece):
            out.write(item.event.data)
            out.flush()


def _print_lines(client: Client, view: RunView, query: LogQuery, follow: bool, as_json: bool) -> None:
    state = RunState.of(view)
    follow = follow and not state.ended
    growing_s = GROWING_S if follow and not as_json and not is_terminal(sys.stdout) else None
    merger = Merger(color=Paint.of(sys.stdout).color and not as_json, growing_s=growing_s)
    chosen: AbstractContextManager[Display]
    if as_json:
        chosen = nullcontext(JsonDisplay(sys.stdout, states=False))
    elif follow and is_terminal(sys.stdout):
        chosen = open_display(merger.pending, state, ref(view))
    else:
        chosen = nullcontext(PlainDisplay(sys.stdout, states=False, notes=True))
    printed: deque[str] = deque(maxlen=1)
    with chosen as display:
        screen = Screen(display, state, merger, printed)
        for item in client.stream(view.id, follow=follow, metrics=follow, query=query):
            screen.show(item)
        screen.finish()
    if not printed and not as_json:
        say(nothing_printed(state, query))


def nothing_printed(state: RunState, query: LogQuery) -> str:
    """Why there are no lines, so that empty output is not taken for a failure."""
    if any(value is not None for value in (query.grep, query.since, query.ago_s, query.first_line)):
        return "no lines like that; without these options all are printed"
    who = "the run" if query.rank is None else f"rank {query.rank}"
    return f"{who} printed nothing" if state.ended else f"{who} has printed nothing yet; -f waits for it"


def _range(option: str, text: str | None, least: int) -> tuple[int | None, int | None]:
    """Parse FIRST:LAST; either may be left out."""
    if text is None:
        return None, None
    first, colon, last = text.partition(":")
    numbers = [int(part) if part.isdecimal() else None for part in (first, last)]
    is_valid = colon and all(not part or part.isdecimal() for part in (first, last)) and (first or last)
    if not is_valid or any(number is not None and number < least for number in numbers):
        raise UserError(f"{option} {text}: give the first and the last one, from {least} on, such as 100:120 or 100:.")
    if numbers[0] is not None and numbers[1] is not None and numbers[1] < numbers[0]:
        raise UserError(f"{option} {text}: the last one comes before the first.", f"Try {last}:{first}.")
    return numbers[0], numbers[1]


def _since(text: str | None) -> LogQuery:
    """A time, or an age, as a query."""
    if text is None:
        return LogQuery()
    if (seconds := parse_duration(text)) is not None:
        return LogQuery(ago_s=seconds)
    try:
        return LogQuery(since=datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        raise UserError(
            f"--since {text}: give how long ago, such as 90, 15m or 1h30m, or a time, such as 2026-01-31T12:00."
        ) from None


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none yet"
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
