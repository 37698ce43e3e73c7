"""The loop of an agent: one thread that waits for descriptors, for other threads and for signals."""

from __future__ import annotations

import os
import queue
import selectors
import signal
from collections.abc import Callable

Action = Callable[[], None]


class Loop:
    """Runs what descriptors, other threads and signals bring, one thing after the other."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._mailbox: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()

    def post(self, action: Action) -> None:
        """Have something done in the loop; callable from every thread."""
        self._mailbox.put(action)
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            pass

    def watch_signals(self, terminate: Action) -> None:
        """Have SIGTERM and SIGINT handled in the loop."""
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self.selector.register(self._wake_read, selectors.EVENT_READ, self._open_mailbox)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._mailbox.put(terminate))

    def turn(self, wait_s: float) -> None:
        """Wait for something to do, for so long at most, and do it."""
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
