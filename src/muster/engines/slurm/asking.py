"""Queries to Slurm's controller, run in the background: a slow one delays nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable

_ANSWER_S = 1.0


class Asker:
    """Runs a query in a separate thread, at a limited rate, and waits for it briefly."""

    def __init__(self, ask: Callable[[], None], name: str, clock: Callable[[], float]) -> None:
        """`ask` must not raise."""
        self._ask = ask
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._asking: threading.Thread | None = None

    def ask(self, not_more_often_s: float) -> None:
        """Unless it was asked a moment ago."""
        with self._lock:
            if self._asking is None and self._clock() - self._asked_at >= not_more_often_s:
                self._asking = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._asking.start()
            asking = self._asking
        if asking is not None:
            asking.join(_ANSWER_S)

    def _work(self) -> None:
        try:
            self._ask()
        finally:
            with self._lock:
                self._asking = None
                self._asked_at = self._clock()
