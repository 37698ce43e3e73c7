"""How fast a fill goes, and how long it will still take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from muster.storage.staging.messages import ProgressReport
from muster.wire.data.fileservers import FillProgress, FillState

_WINDOW_S = 10.0


class Pace:
    """The rate of the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def told(self, fill: int, report: ProgressReport) -> FillProgress:
        """The progress of a fill, in figures and in words."""
        now, moved = self._clock(), report.done_bytes - report.resumed_bytes
        self._seen.append((now, moved))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        state: FillState = "filling" if report.total_files else "listing"
        return FillProgress(
            fill, state, report.done_bytes, report.total_bytes, report.done_files, report.total_files,
            self._words(report.total_bytes - report.done_bytes),
        )  # fmt: skip

    def _words(self, left: int) -> str:
        (then, before), (now, moved) = self._seen[0], self._seen[-1]
        rate = (moved - before) / (now - then) if now > then else 0.0
        if left <= 0:
            return ""
        if rate <= 0:
            return f"nothing came in the last {now - then:.0f} s" if now - then >= _WINDOW_S - 1 else ""
        seconds = left / rate
        told = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f"{rate / 1e6:.1f} MB/s, about {told} left"
