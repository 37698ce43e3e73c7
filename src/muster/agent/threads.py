"""The agent's threads: a loop that waits for descriptors, threads and signals, and workers for slow work."""

from __future__ import annotations

import logging
import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Action = Callable[[], None]


class Loop:
    """Handles descriptors, actions from other threads and signals, one after the other."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._mailbox: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()

    def post(self, action: Action) -> None:
        """Queue an action for the loop; callable from any thread."""
        self._mailbox.put(action)
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            pass

    def watch_signals(self, terminate: Action) -> None:
        """Handle SIGTERM and SIGINT in the loop."""
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self.selector.register(self._wake_read, selectors.EVENT_READ, self._open_mailbox)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._mailbox.put(terminate))

    def turn(self, wait_s: float) -> None:
        """Wait for something to do, at most for `wait_s`, and do it."""
        for key, _ in self.selector.select(wait_s):
            key.data()

    def _open_mailbox(self) -> None:
        os.read(self._wake_read, 65536)
        while True:
            try:
                action = self._mailbox.get_nowait()
            except queue.Empty:
                return
            action()


class Workers:
    """Threads that take jobs from one queue; started when first needed."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._jobs: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, job: Action) -> None:
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
