"""Notices a process that waits for a thread which will never run, and lets it end rather than hang."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

TICK_S = 1.0
TICKS = 30
"""A thread that has not begun after so many looks, each after a tick of this process, does not begin any more."""

log = logging.getLogger("muster.server")


def watch(tick_s: float = TICK_S, ticks: int = TICKS) -> None:
    """Look after this process from a thread of its own.

    Where memory is used up a new thread may die before its first line, and `Thread.start` waits for that line for ever;
    an event loop that waits there answers nobody and cannot be asked to end.
    """
    threading.Thread(target=_look, args=(tick_s, ticks), name="watchdog", daemon=True).start()


def _look(tick_s: float, ticks: int) -> None:
    pause = threading.Event()
    seen: dict[int, tuple[FrameType, int]] = {}
    while True:
        # Ticks are counted rather than seconds: a process that was stopped for a while is not stuck.
        pause.wait(tick_s)
        starting = {thread: frame for thread, top in sys._current_frames().items() if (frame := _starting(top))}
        seen = seen_again(seen, starting)
        for frame, times in seen.values():
            if times >= ticks:
                _end(frame)


def seen_again(
    before: Mapping[int, tuple[FrameType, int]], now: Mapping[int, FrameType]
) -> dict[int, tuple[FrameType, int]]:
    """How many times in a row each thread was seen in the same call."""
    return {
        thread: (frame, before[thread][1] + 1 if thread in before and before[thread][0] is frame else 1)
        for thread, frame in now.items()
    }


def _starting(frame: FrameType | None) -> FrameType | None:
    """The call in which a thread waits for another one to begin."""
    while frame is not None:
        if frame.f_code is threading.Thread.start.__code__:
            return frame
        frame = frame.f_back
    return None


def _end(frame: FrameType) -> None:
    where = "".join(traceback.format_stack(frame, limit=4))
    try:
        log.critical("a thread was started and never began, as where memory is used up: this process ends\n%s", where)
    finally:
        # Whoever is stuck cannot be asked; what is kept is as after a kill, and the next one takes it up.
        os._exit(1)
