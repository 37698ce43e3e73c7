"""A run's output, as whole lines on standard output."""

from __future__ import annotations

import re
import sys
import time

from muster.defaults import GROWING_S
from muster.wire.stream import LogPiece, RunEnded, StateChanged, StreamEvent

_KEPT_BYTES = 1 << 20
"""The most bytes kept of an unfinished line."""


class LineMerger:
    """Turns bytes of several logs into whole lines; a line rewritten with carriage returns shows its last state."""

    def __init__(self, num_ranks: int) -> None:
        self._prefixed = num_ranks > 1
        self._rest: dict[str, bytes] = {}
        self._shown_at: dict[str, float] = {}

    def feed(self, log: LogPiece) -> str:
        """The lines that a log event completes."""
        stream = log.stream
        *lines, rest = (self._rest.get(stream, b"") + log.data).split(b"\n")
        if len(rest) > _KEPT_BYTES:
            lines.append(rest)
            rest = b""
        self._rest[stream] = rest
        if not lines and b"\r" in log.data and self._is_due(stream):
            # The current state of a progress bar.
            lines.append(rest)
        return "".join(self._line(stream, line) for line in lines)

    def _is_due(self, stream: str) -> bool:
        now = time.monotonic()
        if now - self._shown_at.get(stream, -GROWING_S) < GROWING_S:
            return False
        self._shown_at[stream] = now
        return True

    def finish(self) -> str:
        """The rest, which has no end of line."""
        left = "".join(self._line(stream, rest) for stream, rest in sorted(self._rest.items()) if rest)
        self._rest.clear()
        return left

    def _line(self, stream: str, line: bytes) -> str:
        shown = line.removesuffix(b"\r").rpartition(b"\r")[2].decode(errors="replace")
        return f"{_prefix(stream) if self._prefixed else ''}{shown}\n"


def _prefix(stream: str) -> str:
    name = re.sub(r"^user_logs/(std_log_)?|\.txt$", "", stream)
    rank = re.fullmatch(r"process_0*(\d+)", name)
    return f"[rank {rank[1]}] " if rank else f"[{name}] "


def show(printer: LineMerger, event: StreamEvent) -> None:
    text = ""
    if isinstance(event, LogPiece):
        text = printer.feed(event)
    elif isinstance(event, RunEnded):
        text = printer.finish()
    elif isinstance(event, StateChanged) and event.reason:
        text = f"{event.status}: {event.reason}\n"
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
