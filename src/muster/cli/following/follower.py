"""Follows a run to its end; Ctrl-C cancels the run."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol

import typer

from muster.cli import exits
from muster.cli.console import Paint, columns, is_terminal, print_lines, say
from muster.cli.following.display import Display, QuietDisplay, open_display
from muster.cli.following.lines import Line, Merger, clean
from muster.cli.following.state import RunState
from muster.cli.interrupts import Interrupts
from muster.cli.options import print_json
from muster.cli.views.run import ref, summary
from muster.client.sse import StreamItem
from muster.defaults import GROWING_S
from muster.wire.runs import RunView
from muster.wire.states import RunStatus
from muster.wire.stream import LogPiece, Note, RunEnded, StateChanged

_REMEMBERED_LINES = 500
"""How many printed lines are remembered, so that a summary need not repeat them."""


class Streaming(Protocol):
    """The part of the client that following needs."""

    def run(self, ref: str) -> RunView: ...
    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamItem]: ...
    def cancel(self, ref: str, force: bool = False) -> object: ...


def without_repetition(view: RunView, shown: set[str]) -> RunView:
    """The run without the last lines of its verdict, where all of them were just printed."""
    verdict = view.verdict
    if verdict is None or not verdict.lines or not {line.strip() for line in verdict.lines} <= shown:
        return view
    return replace(view, verdict=replace(verdict, lines=()))


def follow(
    client: Streaming,
    view: RunView,
    quiet: bool,
    shown: set[str] | None = None,
    printed: deque[str] | None = None,
    cursor: str | None = None,
) -> RunStatus:
    """Show the run, from `cursor` on, until it ends; returns its final state.

    A quiet one does not repeat the notes in `shown`.
    """
    state = RunState.of(view)
    # A terminal shows bars below the lines.
    growing_s = None if is_terminal(sys.stdout) else GROWING_S
    merger = Merger(color=Paint.of(sys.stdout).color, growing_s=growing_s)
    shown = set() if shown is None else shown
    try:
        with (
            Interrupts() as interrupts,
            nullcontext(QuietDisplay(sys.stdout, shown))
            if quiet
            else open_display(merger.pending, state, ref(view)) as display,
        ):
            if not quiet:
                display.note(f"run {view.id}" + (f" ({view.name})" if view.name not in (None, view.id) else ""))
            screen = Screen(display, state, merger, printed, cursor)
            return Follower(client, view, screen, interrupts).until_end(logs=not quiet)
    except Abandoned:
        say(f"No longer waiting; `muster show {view.id}` shows how it ended.")
        raise typer.Exit(exits.EXIT_INTERRUPTED) from None


def follow_to_end(client: Streaming, view: RunView, *, quiet: bool, as_json: bool, cursor: str | None = None) -> int:
    """Show the run until it ends, and then how it ended; returns the exit code."""
    shown: deque[str] = deque(maxlen=_REMEMBERED_LINES)
    status = follow(client, view, quiet=quiet or as_json, printed=shown, cursor=cursor)
    view = client.run(view.id)
    if as_json:
        print_json(view)
    else:
        view = without_repetition(view, set(shown))
        # Not mixed with the ranks' lines where those go into a pipe or file.
        out = sys.stdout if sys.stdout.isatty() else sys.stderr
        print_lines(["", *summary(view, Paint.of(out), time.time(), columns(out))], out)
    return exits.EXIT_CODES.get(status, exits.EXIT_FAILED)


class Abandoned(Exception):
    """The user no longer wants to wait."""


class Screen:
    """Shows the events of a stream on a display."""

    def __init__(
        self,
        display: Display,
        state: RunState,
        merger: Merger,
        printed: deque[str] | None = None,
        cursor: str | None = None,
    ) -> None:
        self._printed: deque[str] = deque(maxlen=0) if printed is None else printed
        self.display = display
        self.state = state
        self.cursor = cursor
        self._merger = merger
        self._attempt: int | None = None

    def show(self, item: StreamItem) -> None:
        event = item.event
        self.state.apply(event, time.time())
        if isinstance(event, LogPiece):
            self._show_log(event)
        else:
            if isinstance(event, Note):
                self.display.note(event.text, event.level)
            elif isinstance(event, StateChanged | RunEnded):
                self.display.changed(self.state)
        self.cursor = item.cursor

    def finish(self) -> None:
        self._print(self._merger.finish())

    def _show_log(self, piece: LogPiece) -> None:
        if piece.attempt != self._attempt:
            self.finish()
            if self._attempt is not None:
                self.display.note(f"attempt {piece.attempt}")
            self._attempt = piece.attempt
        self._print(self._merger.feed(piece.stream, piece.data))

    def _print(self, lines: Sequence[Line]) -> None:
        self._printed.extend(clean(line.text, color=False).strip() for line in lines)
        self.display.lines(lines)


class Follower:
    """Follows a run to its end; a first Ctrl-C cancels the run, a second one kills it."""

    def __init__(self, client: Streaming, view: RunView, screen: Screen, interrupts: Interrupts) -> None:
        self._client = client
        self._run = view.id
        self._name = ref(view)
        self._screen = screen
        self._interrupts = interrupts
        self._answered = 0

    def until_end(self, logs: bool = True) -> RunStatus:
        """Returns the state in which the run ended."""
        state = self._screen.state
        while not state.ended:
            try:
                self._follow(logs)
            except KeyboardInterrupt:
                pass
            self._answer()
        self._screen.finish()
        return state.status

    def _follow(self, logs: bool) -> None:
        events = self._client.stream(self._run, cursor=self._screen.cursor, logs=logs)
        while self._interrupts.count == self._answered:
            with self._interrupts.waiting():
                item = next(events, None)
            if item is None:
                self._screen.state.status = self._client.run(self._run).status
                return
            self._screen.show(item)
            if isinstance(item.event, RunEnded):
                return

    def _answer(self) -> None:
        """Act on new Ctrl-Cs: cancel, then kill, then stop waiting."""
        while self._interrupts.count > self._answered and not self._screen.state.ended:
            self._answered += 1
            if self._answered > 2:
                raise Abandoned
            force = self._answered == 2
            self._screen.display.note(
                f"Killing {self._name} …"
                if force
                else f"Cancelling {self._name}; its ranks may clean up. Ctrl-C again kills it at once."
            )
            try:
                with self._interrupts.waiting():
                    self._client.cancel(self._run, force=force)
            except KeyboardInterrupt:
                continue
