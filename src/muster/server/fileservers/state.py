"""The latest reports of file servers' processes. In memory: they report every second."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from muster.wire.data.fileservers import FileServerReport

_FRESH_S = 15.0


@dataclass
class FileServersState:
    """During one life of the server."""

    heard: dict[str, tuple[FileServerReport, float]] = field(default_factory=dict)
    """By run."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Something about file servers has changed: the loop looks at them."""

    def note(self, run: str, report: FileServerReport) -> None:
        self.heard[run] = (report, time.monotonic())

    def of(self, run: str | None) -> FileServerReport | None:
        """What a run reported a moment ago; None where it has been silent."""
        found = self.heard.get(run or "")
        return found[0] if found is not None and time.monotonic() - found[1] < _FRESH_S else None
