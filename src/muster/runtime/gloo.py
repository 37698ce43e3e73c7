"""Gloo's threads, which PyTorch leaves behind: once they are idle, a process may fork or end."""

from __future__ import annotations

import time
from pathlib import Path

_THREADS = Path("/proc/self/task")
_BLINDLY_S = 0.5
_AT_MOST_S = 5.0
_PAUSE_S = 0.005
_LOOKS = 3


def wait_for_gloo() -> None:
    """Wait until Gloo's threads are idle: one that frees its last tensors after Python has ended aborts the process.

    They outlive the process group if DDP was used, and PyTorch has no call that waits for them. A thread that waits
    for the GIL gets it in the pauses here, so one that sleeps at several looks in a row has nothing left to do.
    """
    if not _THREADS.is_dir():
        time.sleep(_BLINDLY_S)
        return
    looks, deadline = 0, time.monotonic() + _AT_MOST_S
    while looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        looks = looks + 1 if gloo_rests(_THREADS) else 0


def gloo_rests(threads: Path) -> bool:
    """Whether none of Gloo's threads is busy."""
    for thread in threads.iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            # The thread has ended.
            continue
        if name == "pt_gloo_runloop" and not rest.lstrip().startswith("S"):
            return False
    return True
