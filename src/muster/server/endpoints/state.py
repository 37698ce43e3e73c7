"""The last reports of endpoints' runs, and the waits for a new table. In memory: reports come every second."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from muster.wire.serving.endpoints import ServingFigures, ServingReport

FRESH_S = 15.0
"""How long a report is valid."""


@dataclass
class Heard:
    """A run's last report."""

    report: ServingReport
    at: float


@dataclass
class EndpointsState:
    """Lasts as long as one server."""

    heard: dict[str, Heard] = field(default_factory=dict)
    """By run."""
    _looked_through: int = 64
    """With more reports than this, those that are no longer valid are dropped."""
    _waiters: dict[str, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    _listeners: dict[str, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    """Those that wait for a report, by run."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Something about endpoints has changed: the loop looks at them."""
    is_closing: bool = False
    """The server is ending: nobody waits any more."""

    def note(self, run: str, report: ServingReport) -> None:
        now = time.monotonic()
        self.heard[run] = Heard(report, now)
        if len(self.heard) > self._looked_through:
            self.heard = {name: item for name, item in self.heard.items() if now - item.at < FRESH_S}
            self._looked_through = 2 * len(self.heard) + 64
        for event in self._listeners.get(run, ()):
            event.set()

    def of(self, run: str | None) -> ServingReport | None:
        """The last report of a run; None if it has been silent."""
        found = self.heard.get(run or "")
        return found.report if found is not None and time.monotonic() - found.at < FRESH_S else None

    def figures(self, run: str | None) -> Mapping[str, ServingFigures]:
        """A run's figures of deployments, by name."""
        report = self.of(run)
        return {item.deployment: item for item in report.figures} if report is not None else {}

    async def until_followed(self, run: str, version: int, most_s: float) -> bool:
        """Wait until a front door reports that it uses this table or a newer one; returns whether it did in time."""
        event = asyncio.Event()
        self._listeners[run].add(event)
        try:
            async with asyncio.timeout(most_s):
                while (said := self.of(run)) is None or said.seen < version:
                    await event.wait()
                    event.clear()
            return True
        except TimeoutError:
            return False
        finally:
            self._listeners[run].discard(event)
            if not self._listeners[run]:
                del self._listeners[run]

    @contextmanager
    def watching(self, endpoint: str) -> Iterator[asyncio.Event]:
        """An event that is set when the endpoint's table may have changed, as long as the block lasts."""
        event = asyncio.Event()
        self._waiters[endpoint].add(event)
        try:
            yield event
        finally:
            self._waiters[endpoint].discard(event)
            if not self._waiters[endpoint]:
                del self._waiters[endpoint]

    def close(self) -> None:
        """On the event loop: end all waits when the server ends."""
        self.is_closing = True
        for events in self._waiters.values():
            for event in events:
                event.set()

    def wake(self, endpoint: str) -> None:
        """On the event loop: wake those that wait for a change of the endpoint."""
        for event in self._waiters.get(endpoint, ()):
            event.set()
        self.changed.set()
