"""Waiting for conditions, with a deadline after which something counts as stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""After that long a run counts as stuck; machines that run tests may be crowded."""


class Stuck(Exception):
    """Something did not come about in time."""


def until(condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """What the condition returns, once that is true."""
    pause_s, deadline = 0.01, time.monotonic() + patience_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise Stuck(f"{what}: not within {patience_s:g} s")
        time.sleep(pause_s)
        # Asking takes time away from what is waited for.
        pause_s = min(pause_s * 1.2, 0.1)
