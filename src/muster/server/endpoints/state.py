"""What runs of endpoints reported last, and who waits for another table. In memory: they report every second."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from muster.wire.serving.endpoints import ServingFigures, ServingReport

FRESH_S = 15.0
"""How long what was reported counts."""


@dataclass
class Heard:
    """A run's last report."""

    report: ServingReport
    at: float


@dataclass
class EndpointsState:
    """Of one server's life."""

    heard: dict[str, Heard] = field(default_factory=dict)
    """By run."""
    _looked_through: int = 64
    """Above so many, those that do not count any more go."""
    _waiters: dict[str, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    _listeners: dict[str, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    """Who waits for a report, by run."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Something about endpoints has changed: the loop looks at them."""
    is_closing: bool = False
    """The server ends: nobody waits any more."""

    def note(self, run: str, report: ServingReport) -> None:
        now = time.monotonic()
        self.heard[run] = Heard(report, now)
        if len(self.heard) > self._looked_through:
            self.heard = {name: item for name, item in self.heard.items() if now - item.at < FRESH_S}
            self._looked_through = 2 * len(self.heard) + 64
        for event in self._listeners.get(run, ()):
            event.set()

    def of(self, run: str | None) -> ServingReport | None:
        """What a run reported a moment ago; None where it has been silent."""
        found = self.heard.get(run or "")
        return found.report if found is not None and time.monotonic() - found.at < FRESH_S else None

    def figures(self, run: str | None) -> Mapping[str, ServingFigures]:
        """What a run says of deployments, by name."""
        report = self.of(run)
        return {item.deployment: item for item in report.figures} if report is not None else {}

    async def until_followed(self, run: str, version: int, most_s: float) -> bool:
        """Wait until a front door says that it goes by a table, or a newer one; whether it does so in time."""
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
        """An event that is set when the endpoint's table may be another, as long as the block lasts."""
        event = asyncio.Event()
        self._waiters[endpoint].add(event)
        try:
            yield event
        finally:
            self._waiters[endpoint].discard(event)
            if not self._waiters[endpoint]:
                del self._waiters[endpoint]

    def close(self) -> None:
        """On the event loop, when the server ends."""
        self.is_closing = True
        for events in self._waiters.values():
            for event in events:
                event.set()

    def wake(self, endpoint: str) -> None:
        """On the event loop: have those who wait for the endpoint look again."""
        for event in self._waiters.get(endpoint, ()):
            event.set()
        self.changed.set()
