"""Waiting for conditions, with a deadline after which something counts as stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""After that long a run counts as stuck, on a machine that has processors to spare."""
_LEAST_SHARE = 0.2
"""Of a second in which somebody waits for a processor the whole time, so much counts."""
_PRESSURE = Path("/proc/pressure/cpu")


class Stuck(Exception):
    """Something did not come about in time."""


def until(condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """What the condition returns, once that is true."""
    pause_s, patience = 0.01, Patience(patience_s)
    while True:
        if value := condition():
            return value
        if patience.over():
            raise Stuck(f"{what}: not within {patience_s:g} s")
        time.sleep(pause_s)
        # Asking takes time away from what is waited for.
        pause_s = min(pause_s * 1.2, 0.1)


class Patience:
    """A deadline that no crowd brings nearer: while processes wait for a processor, time counts less."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._last = time.monotonic(), _waited_s()

    def over(self) -> bool:
        now, waited = time.monotonic(), _waited_s()
        passed_s = now - self._last[0]
        self._left_s -= max(passed_s * _LEAST_SHARE, passed_s - (waited - self._last[1]))
        self._last = now, waited
        return self._left_s < 0


def _waited_s() -> float:
    """How long some process has waited for a processor so far, says the kernel; 0.0: it does not say."""
    try:
        total = _PRESSURE.read_text().split("\n")[0].rpartition("total=")[2]
    except OSError:
        return 0.0
    return int(total) / 1e6
