"""A few threads for work that waits: fetching, copying, sending, removing."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Job = Callable[[], None]


class Workers:
    """Threads that take jobs from one queue; started when first needed."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, job: Job) -> None:
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, patience_s: float) -> None:
        """Finish what was submitted, for a bounded time."""
        deadline = time.monotonic() + patience_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a job of %s failed", self._name)
            self._idle.release()
