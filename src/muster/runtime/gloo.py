"""Gloo's threads, which PyTorch leaves behind: when they rest, a process may fork or end."""

from __future__ import annotations

import time
from pathlib import Path

_THREADS = Path("/proc/self/task")
_BLINDLY_S = 0.5
_AT_MOST_S = 5.0
_PAUSE_S = 0.005
_LOOKS = 3


def wait_for_gloo() -> None:
    """Until Gloo's threads rest: one that still puts down its last tensors when Python is gone aborts the process.

    They outlive the process group where DDP was used, and PyTorch has nothing to wait for. A thread that waits for
    Python gets it in the pauses here, so one that sleeps at several looks in a row has nothing left to do.
    """
    if not _THREADS.is_dir():
        time.sleep(_BLINDLY_S)
        return
    looks, deadline = 0, time.monotonic() + _AT_MOST_S
    while looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        looks = looks + 1 if gloo_rests(_THREADS) else 0


def gloo_rests(threads: Path) -> bool:
    """Whether none of them is at work."""
    for thread in threads.iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            # It has ended.
            continue
        if name == "pt_gloo_runloop" and not rest.lstrip().startswith("S"):
            return False
    return True
