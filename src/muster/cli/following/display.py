"""Showing a run while it is active: plain lines, or a live view where there is a terminal."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from textwrap import wrap
from typing import Any, Protocol, TextIO

from muster.cli.console import Paint, is_terminal, safe, say
from muster.cli.following.lines import Line, clean
from muster.cli.following.log_names import is_build, source_of
from muster.cli.following.state import RunState
from muster.cli.text import duration, folded, number, shorten
from muster.cli.views.metrics import loss, throughput
from muster.cli.views.movement import silence
from muster.wire.states import RUNNING
from muster.wire.text import printable

MAX_PENDING_LINES = 8
MAX_REASON_LINES = 3
REFRESH_PER_S = 5


class Display(Protocol):
    """The interface for lines, notes and states."""

    def lines(self, lines: Sequence[Line]) -> None: ...
    def note(self, text: str, level: str = "") -> None: ...
    def changed(self, state: RunState) -> None: ...


@contextmanager
def open_display(pending: Callable[[], Mapping[str, str]], state: RunState, name: str) -> Iterator[Display]:
    """The live view on a terminal, plain lines elsewhere."""
    if not is_terminal(sys.stdout):
        yield PlainDisplay(sys.stdout)
        return
    display = LiveDisplay(sys.stdout, pending, state, name)
    with display.live:
        yield display


class PlainDisplay:
    """Lines of ranks on standard output, everything else (where wanted) on standard error."""

    def __init__(self, out: TextIO, states: bool = True, notes: bool | None = None) -> None:
        self.paint = Paint.of(out)
        self._out = out
        self._states = states
        self._notes = states if notes is None else notes
        self._shown = ""

    def lines(self, lines: Sequence[Line]) -> None:
        if self._states:
            # Standard output is only for the ranks' lines.
            sys.stderr.write(rank_lines([line for line in lines if is_build(line.source)], Paint.of(sys.stderr)))
            lines = [line for line in lines if not is_build(line.source)]
        if lines:
            self._out.write(rank_lines(lines, self.paint))
            self._out.flush()

    def note(self, text: str, level: str = "") -> None:
        if self._notes:
            say(_noted(text, level, Paint.of(sys.stderr)))

    def changed(self, state: RunState) -> None:
        text = f"{state.status}: {state.reason}" if state.reason else state.status
        if self._states and text != self._shown:
            self._shown = text
            say(text)


class QuietDisplay(PlainDisplay):
    """Shows only notes, each once; `shown` has those of earlier runs."""

    def __init__(self, out: TextIO, shown: set[str]) -> None:
        super().__init__(out)
        self._shown_notes = shown

    def note(self, text: str, level: str = "") -> None:
        if text not in self._shown_notes:
            self._shown_notes.add(text)
            super().note(text, level)

    def lines(self, lines: Sequence[Line]) -> None:
        pass

    def changed(self, state: RunState) -> None:
        pass


class JsonDisplay(PlainDisplay):
    """One JSON object for each line."""

    def lines(self, lines: Sequence[Line]) -> None:
        for line in lines:
            entry = {"stream": line.source, "source": source_of(line.source).label, "text": line.text}
            self._out.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._out.flush()


class LiveDisplay:
    """Lines scroll by; below them are the state and every rank's unfinished line."""

    def __init__(self, out: TextIO, pending: Callable[[], Mapping[str, str]], state: RunState, name: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.paint = Paint.of(out)
        self._pending = pending
        self._state = state
        self._name = printable(name)
        # A thread redraws the view, so that the clock moves while nothing is printed.
        self.live = Live(
            get_renderable=self._render,
            console=Console(file=out, highlight=False, no_color=None if self.paint.color else True),
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        )

    def lines(self, lines: Sequence[Line]) -> None:
        if lines:
            self.live.console.out(rank_lines(lines, self.paint), end="")

    def note(self, text: str, level: str = "") -> None:
        self.live.console.out(safe(folded(_noted(text, level, self.paint), shutil.get_terminal_size().columns)))

    def changed(self, state: RunState) -> None:
        pass

    def _render(self) -> Any:
        from rich.text import Text

        columns, rows = shutil.get_terminal_size()
        area = live_area(self._state, self._pending(), self._name, self.paint, time.time(), columns, rows)
        return Text.from_ansi("\n".join(area), no_wrap=True, overflow="ellipsis")


def rank_lines(lines: Sequence[Line], paint: Paint) -> str:
    """Lines with the prefix of their rank."""
    prefixes = {source: _prefix(source, paint) for source in {line.source for line in lines}}
    return "".join(f"{prefixes[line.source]}{line.text}\n" for line in lines)


def live_area(
    state: RunState, pending: Mapping[str, str], name: str, paint: Paint, now: float, columns: int, rows: int
) -> list[str]:
    """The lines below the logs: unfinished lines of ranks, the state, a progress bar."""
    room = max(0, min(MAX_PENDING_LINES, rows - 4))
    area = [
        f"{_prefix(source, paint)}{shorten_colored(text, columns)}" for source, text in list(pending.items())[:room]
    ]
    if len(pending) > room:
        area.append(paint(f"… and {len(pending) - room} more ranks", "dim"))
    line = status_line(state, name, paint, now)
    if state.reason and not state.ended and len(clean(line, color=False)) > columns:
        # Rate and remaining time are at the end of a reason.
        area.append(status_line(replace(state, reason=""), name, paint, now))
        area += [f"  {part}" for part in wrap(state.reason, max(20, columns - 2))[:MAX_REASON_LINES]]
    else:
        area.append(line)
    if bar := progress_line(state, paint, columns, now):
        area.append(bar)
    return area


def status_line(state: RunState, name: str, paint: Paint, now: float) -> str:
    parts = [paint(name, "bold"), paint.status(state.status)]
    if state.reason and not state.ended:
        parts.append(state.reason)
    if state.ranks:
        total = max(state.num_ranks, len(state.ranks))
        ended = state.count("ended")
        parts.append(f"{state.count('running')}/{total} ranks" + (f", {ended} ended" if ended else ""))
    since = state.started_at or state.created_at
    if since is not None:
        parts.append(duration(now - since))
    if silent := _silent(state, now):
        # Old figures would suggest progress.
        return "  ".join([*parts, paint(silent, "yellow")])
    if figure := throughput(state.metrics):
        parts.append(figure)
    if (value := loss(state.metrics)) is not None:
        parts.append(f"loss {number(value)}")
    return "  ".join(parts)


def progress_line(state: RunState, paint: Paint, columns: int, now: float) -> str:
    progress = state.progress
    if progress is None:
        return ""
    done = f"{number(progress.done)}" + (f"/{number(progress.total)}" if progress.total else "")
    text = f" {done} {progress.unit}".rstrip()
    if progress.fraction is None:
        return text.strip()
    if progress.left_s is not None and progress.fraction < 1 and not _silent(state, now):
        text += f"  about {duration(progress.left_s)} left"
    width = max(10, min(40, columns - len(text) - 8))
    full = int(progress.fraction * width)
    return f"{paint('━' * full, 'green')}{paint('─' * (width - full), 'dim')} {progress.fraction:4.0%}{text}"


def _silent(state: RunState, now: float) -> str:
    return silence(state.moved_at, now) if state.status == RUNNING else ""


def shorten_colored(text: str, columns: int) -> str:
    """A rank's line cut to the screen; colours go when it must be cut."""
    bare = clean(text, color=False)
    return text if len(bare) < columns else shorten(bare, columns)


def _noted(text: str, level: str, paint: Paint) -> str:
    words = {"info": ("notice:", "yellow"), "warning": ("warning:", "yellow"), "error": ("error:", "red")}
    if level not in words:
        return text
    word, color = words[level]
    return f"{paint(word, color)} {text}"


def _prefix(source: str, paint: Paint) -> str:
    known = source_of(source)
    return paint.rank(f"[{known.label}]", known.number) + " " if known.label else ""
