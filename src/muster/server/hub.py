"""Wakes long polls, log followers and the scheduler. Lives on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from muster.host import clock

log = logging.getLogger("muster.server")

_NEVER_EARLY_S = 0.001
_FOLLOWERS_AT_ONCE = 2


@dataclass
class NodeContact:
    """What this server process knows about a node's agent."""

    agent: str
    seen: float
    holding: set[tuple[str, int]] = field(default_factory=set)
    doing: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The current step of a slow preparation, by run, and since when."""
    setup_error: str | None = None
    """Why its node's set-up failed, if it did."""
    host: str = ""
    builds: bool = False
    """It accepts orders to build environments."""


class Hub:
    """Versions and wake-ups; `changed` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._born = time.monotonic()
        self._first_version = int(time.time() * 1000)
        self._node_versions: dict[str, int] = {}
        self._node_waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._run_waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self.scheduler = asyncio.Event()
        self.contacts: dict[str, NodeContact] = {}
        self.leaving = False
        """Idle agents are asked to leave."""
        self.leaving_nodes: set[str] = set()
        """Nodes whose agent is asked to leave once it is idle."""
        self.taken_back: set[str] = set()
        """Nodes whose agent was told by somebody else to leave while it had work."""
        self.clusters = asyncio.Event()
        """Something about clusters or their nodes has changed."""
        self.followers = asyncio.Semaphore(_FOLLOWERS_AT_ONCE)
        """Limits concurrent reads for followers: hundreds of them must not take every thread."""
        self.closing = False
        """The server is shutting down: nothing waits any more."""

    def changed(self, nodes: Iterable[str] = (), runs: Iterable[str] = (), queue: bool = False) -> None:
        self._loop.call_soon_threadsafe(self._changed, tuple(nodes), tuple(runs), queue)

    def wake_scheduler_at(self, moment: float) -> None:
        """Wake the scheduler at a time, never earlier by its own clock; callable from any thread.

        The delay counts from now, even if the machine's clock is set meanwhile.
        """
        deadline = time.monotonic() + (moment - clock.now()) + _NEVER_EARLY_S
        self._loop.call_soon_threadsafe(self._wake_scheduler_at, deadline)

    def _wake_scheduler_at(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            self.scheduler.set()
        else:
            # A timer may fire half a millisecond early.
            self._loop.call_later(max(left_s, 0.001), self._wake_scheduler_at, deadline)

    def node_version(self, node: str) -> int:
        return self._node_versions.setdefault(node, self._first_version)

    def silent_s(self, node: str) -> float:
        """How long a node has been silent, by a clock that stops during sleep."""
        contact = self.contacts.get(node)
        return time.monotonic() - (contact.seen if contact else self._born)

    def holds_work(self, node: str) -> bool:
        """Whether a node has reported that it holds attempts."""
        contact = self.contacts.get(node)
        return contact is not None and bool(contact.holding)

    def heard(self, node: str) -> None:
        if contact := self.contacts.get(node):
            contact.seen = time.monotonic()

    async def wait_node(self, node: str, seen: int, timeout_s: float) -> None:
        """Wait until the node's orders have another version than `seen`."""
        if self.node_version(node) == seen and not self.leaving and not self.closing:
            with _watching(self._node_waiters, node) as changed:
                await wait_at_most(changed, timeout_s)

    def watch_run(self, run: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the run changes, while the `with` block lasts."""
        return _watching(self._run_waiters, run)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the loop; callable from any thread."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def in_background(self, work: Callable[[], object]) -> None:
        """Run something slow in a thread; errors are logged."""
        self._loop.call_soon_threadsafe(self._loop.run_in_executor, None, _run_logged, work)

    def close(self) -> None:
        self.closing = True
        self.wake_all()

    def wake_soon(self, also: Callable[[], None] = lambda: None) -> None:
        """Wake all waiters, and run something in addition; callable from any thread."""

        def wake() -> None:
            also()
            self.wake_all()

        self._loop.call_soon_threadsafe(wake)

    def wake_all(self) -> None:
        for waiters in (*self._node_waiters.values(), *self._run_waiters.values()):
            for event in waiters:
                event.set()

    def _changed(self, nodes: tuple[str, ...], runs: tuple[str, ...], queue: bool) -> None:
        for node in nodes:
            self._node_versions[node] = self.node_version(node) + 1
            for event in self._node_waiters.get(node, ()):
                event.set()
        for run in runs:
            for event in self._run_waiters.get(run, ()):
                event.set()
        if queue:
            self.scheduler.set()
            self.clusters.set()


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event with a timeout, which is not an error."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)


@contextmanager
def _watching(waiters: dict[str, set[asyncio.Event]], key: str) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    waiters[key].add(event)
    try:
        yield event
    finally:
        waiters[key].discard(event)
        if not waiters[key]:
            del waiters[key]


def _run_logged(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("a background task failed")
