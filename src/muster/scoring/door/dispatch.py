"""Requests to one deployment: how many may be open, which wait, and which replica gets the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Awaitable, Deque, Dict, Optional, Set

from muster.scoring.door.table import Backend, Route, least_busy
from muster.scoring.figures import Traffic

_DOUBTED_S = 5.0
"""How long a replica that died or could not be reached is avoided while there are others."""


class Refused(Exception):
    """A request that is not accepted now: too many are open, or it has waited too long."""


class Lost(OSError):
    """The replica that had a request is gone, and the connection does not show it: its node went away."""


class Dispatcher:
    """The replicas of one deployment, as the front door uses them. Lives on the event loop."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.traffic = Traffic()
        self.open = 0
        self._open_on: Dict[str, int] = {}
        self._waiting: "Deque[asyncio.Future[None]]" = deque()
        self._inside: "Dict[str, Set[asyncio.Task[Any]]]" = {}
        """Tasks that wait for an answer, by the replica's address."""
        self._doubted: Dict[str, float] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def update(self, route: Route) -> None:
        """Take the deployment's new state: other replicas, other limits."""
        self.route = route
        for backend in route.backends:
            if backend.gone:
                self._give_up(self._inside.get(backend.url, set()))
        for _ in range(len(self._waiting)):
            self._wake_next()

    async def acquire(self, deadline: float) -> Backend:
        """The replica for one request, counted as open there; raises Refused, or TimeoutError at the deadline."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = min(deadline, began + self.route.queue_wait_ms / 1000)
        while True:
            if self._doubted:
                now = loop.time()
                self._doubted = {url: over for url, over in self._doubted.items() if over > now}
            backend = least_busy(self.route.backends, self._open_on, self.route.concurrency, self._doubted)
            if backend is not None:
                self._open_on[backend.url] = self._open_on.get(backend.url, 0) + 1
                self.traffic.queue_ms.add((loop.time() - began) * 1000)
                return backend
            # Without any replica there is no queue: one will come back, and the request may wait for it.
            limit = until if any(not backend.gone for backend in self.route.backends) else deadline
            if not await self._wait(limit - loop.time()):
                if loop.time() >= deadline:
                    raise asyncio.TimeoutError
                raise Refused("waited {:g} ms for a replica".format(self.route.queue_wait_ms))

    def doubt(self, backend: Backend) -> None:
        """Note that the replica died, or could not be reached."""
        self._doubted[backend.url] = asyncio.get_running_loop().time() + _DOUBTED_S

    async def inside(self, backend: Backend, answer: Awaitable[int]) -> int:
        """The replica's answer; raises Lost once the table says that the replica is gone."""
        task = asyncio.current_task()
        assert task is not None
        tasks = self._inside.setdefault(backend.url, set())
        tasks.add(task)
        try:
            return await answer
        except asyncio.CancelledError:
            if task in tasks:
                raise
            raise Lost("its node is lost") from None
        finally:
            tasks.discard(task)
            if not tasks and self._inside.get(backend.url) is tasks:
                del self._inside[backend.url]

    def release(self, backend: Backend) -> None:
        left = self._open_on.get(backend.url, 1) - 1
        if left > 0:
            self._open_on[backend.url] = left
        else:
            self._open_on.pop(backend.url, None)
        self._wake_next()

    def open_on_run(self) -> Dict[str, int]:
        """Requests inside replicas, by address."""
        return dict(self._open_on)

    @staticmethod
    def _give_up(tasks: "Set[asyncio.Task[Any]]") -> None:
        """End these tasks, which nobody answers any more: one that is cancelled and not in the set knows why."""
        lost = list(tasks)
        tasks.clear()
        for task in lost:
            task.cancel()

    async def _wait(self, seconds: float) -> bool:
        """Wait; returns whether a replica may have become free in time."""
        if seconds <= 0:
            return False
        turn: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        is_taken = False
        try:
            await asyncio.wait((turn,), timeout=seconds)
            is_taken = turn.done()
            return is_taken
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not is_taken:
                # Its turn came just as it gave up, or as its client went away.
                self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn: Optional["asyncio.Future[None]"] = self._waiting.popleft()
            if turn is not None and not turn.done():
                turn.set_result(None)
                return
