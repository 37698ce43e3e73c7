"""Bytes of many ranks in, whole lines out. Pure.

A carriage return restarts a line: only its last state becomes a line, and the unfinished state can be queried. So
progress bars of many ranks never garble each other, however their writes interleave. Where nobody queries it, as in a
pipe, a bar becomes a line from time to time while it grows.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.wire.text import own_paths

MAX_LINE_BYTES = 64 * 1024
MAX_ESCAPE_BYTES = 32

_UNSAFE = re.compile(
    r"\x1b\[(?P<color>[0-9;:]*)m"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # cursor movement and the like
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, links and other strings
    r"|\x1b\[?[0-?]*[ -/]*$"  # cut short
    r"|\x1b[ -/]*[0-~]"  # short sequences
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)
_RESET = "\x1b[0m"


class Line(NamedTuple):
    """One finished line of one source."""

    source: str
    text: str


@dataclass
class Merger:
    """Collects the output of sources; with `color` their colours are kept, other terminal codes never."""

    color: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    growing_s: float | None = None
    """How often the current state of a progress bar becomes a line, where nothing else shows it; None: never."""
    clock: Callable[[], float] = time.monotonic
    _sources: dict[str, _Unfinished] = field(default_factory=dict)
    _shown_at: dict[str, float] = field(default_factory=dict)

    def feed(self, source: str, data: bytes) -> list[Line]:
        """Add bytes of a source; returns the lines that they finish."""
        unfinished = self._sources.get(source)
        if unfinished is None:
            unfinished = self._sources[source] = _Unfinished(self.max_line_bytes)
        lines = [Line(source, self._text(raw)) for raw in unfinished.feed(data)]
        if self.growing_s is not None and not lines and b"\r" in data:
            lines += self._growing(source, unfinished, self.growing_s)
        return lines

    def _growing(self, source: str, unfinished: _Unfinished, every_s: float) -> list[Line]:
        """The state of a progress bar, unless it was shown a moment ago."""
        now, text = self.clock(), self._text(unfinished.state())
        if not text.strip() or now - self._shown_at.get(source, -every_s) < every_s:
            return []
        self._shown_at[source] = now
        return [Line(source, text)]

    def finish(self) -> list[Line]:
        """End all sources: unfinished lines become lines."""
        ended = [(name, self._sources.pop(name).take()) for name in list(self._sources)]
        return [Line(name, self._text(raw)) for name, raw in ended if raw]

    def pending(self) -> dict[str, str]:
        """The unfinished line of each source."""
        # A copy: a view may call this from its own thread.
        states = {name: self._text(unfinished.state()) for name, unfinished in list(self._sources.items())}
        return {name: text for name, text in states.items() if text.strip()}

    def _text(self, raw: bytes) -> str:
        return own_paths(clean(raw.decode(errors="replace"), self.color))


class _Unfinished:
    """The line that one source is writing, of bounded size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._returned = False

    def feed(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        *finished, rest = data.split(b"\n")
        for part in finished:
            self._write(part, lines)
            lines.append(self.take())
        self._write(rest, lines)
        return lines

    def take(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        self._returned = False
        return line

    def state(self) -> bytes:
        """The line so far, without an incomplete last character."""
        return bytes(self._line[: _character_boundary(self._line)])

    def _write(self, part: bytes, lines: list[bytes]) -> None:
        *earlier, last = part.split(b"\r")
        for segment in earlier:
            self._add(segment, lines)
            self._returned = True
        self._add(last, lines)

    def _add(self, segment: bytes, lines: list[bytes]) -> None:
        if not segment:
            return
        if self._returned:
            self._line.clear()
            self._returned = False
        self._line += segment
        start = 0
        while len(self._line) - start > self._max_bytes:
            cut = start + _cut(self._line[start : start + self._max_bytes])
            lines.append(bytes(self._line[start:cut]))
            start = cut
        del self._line[:start]


def clean(text: str, color: bool) -> str:
    """Text that is safe to print: no control characters, and no escapes except colours."""
    if text.isprintable():
        return text
    colored = False

    def keep(match: re.Match[str]) -> str:
        nonlocal colored
        parameters = match["color"]
        if not color or parameters is None:
            return ""
        colored = parameters.strip("0;") != ""
        return match[0]

    text = _UNSAFE.sub(keep, text)
    # A colour that is not reset would run into the next line, which may be another rank's.
    return text + _RESET if colored else text


def _cut(piece: bytearray) -> int:
    """Where to break a line that is too long: not inside a character, nor inside an escape."""
    escape = piece.rfind(b"\x1b", max(1, len(piece) - MAX_ESCAPE_BYTES))
    if escape > 0 and not re.match(rb"\x1b\[[0-?]*[ -/]*[@-~]", piece[escape:]):
        return escape
    return _character_boundary(piece) or len(piece)


def _character_boundary(data: bytearray) -> int:
    """The length without an incomplete multi-byte character at the end."""
    return codecs.utf_8_decode(data, "replace", False)[1]
