"""Work that another processor can do meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_AHEAD = 2


class Beside:
    """One thread beside its owner's, which makes calls in order: it starts with the first one, and ends by `close`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._calls: deque[Future[Any]] = deque()

    def start(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Make a call soon; waits while two others are before it. What an earlier one raised is raised here."""
        while len(self._calls) >= _AHEAD:
            self._calls.popleft().result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "beside")
        self._calls.append(self._pool.submit(call, *arguments))

    def wait(self) -> None:
        """Until all calls have ended; what one of them raised is raised here."""
        while self._calls:
            self._calls.popleft().result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
