"""Ends a server or agent that ran out of memory, rather than let it hang: the next one takes over."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

TICK_S = 1.0
TICKS = 15
"""A thread that has not begun after so many looks, one per tick of this process, will never begin."""

_NO_THREAD = "can't start new thread"
_DEEPEST = 10
_saying = threading.Lock()

log = logging.getLogger("muster")


def end_without_memory() -> None:
    """End this process as soon as anything in it reports that memory ran out, or could not start a thread.

    Anything may have been interrupted: a request that is never answered, a semaphore that is never released.
    """
    sys.unraisablehook = _unraisable
    threading.excepthook = _in_thread
    # First, so that it sees an error even if it cannot be logged.
    logging.getLogger().handlers.insert(0, _Noticing())


def is_want_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is about memory."""
    for _ in range(_DEEPEST):
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error)):
            return True
        if error is None:
            return False
        error = error.__cause__ or error.__context__
    return False


class _Noticing(logging.Handler):
    """Watches what loops, requests and libraries log, however they handle it."""

    def handle(self, record: logging.LogRecord) -> bool:
        if record.exc_info and is_want_of_memory(record.exc_info[1]):
            _leave("memory was used up: this process ends", record.exc_info[1])
        return True


def _unraisable(report: sys.UnraisableHookArgs) -> None:
    if is_want_of_memory(report.exc_value):
        _leave("memory was used up, and a thread did not begin: this process ends", report.exc_value)
    sys.__unraisablehook__(report)


def _in_thread(report: threading.ExceptHookArgs) -> None:
    if is_want_of_memory(report.exc_value):
        _leave("memory was used up in a thread: this process ends", report.exc_value)
    threading.__excepthook__(report)


def watch(tick_s: float = TICK_S, ticks: int = TICKS) -> None:
    """Watch this process from a thread of its own.

    Without memory a new thread may die before its first line, and `Thread.start` waits for that line for ever; an event
    loop that waits there answers nobody and cannot be asked to end.
    """
    threading.Thread(target=_look, args=(tick_s, ticks), name="watchdog", daemon=True).start()


def _look(tick_s: float, ticks: int) -> None:
    pause = threading.Event()
    seen: dict[int, tuple[FrameType, int]] = {}
    while True:
        # Counts ticks rather than seconds: a process that was stopped for a while is not stuck.
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
    _leave(f"a thread was started and never began, as where memory is used up: this process ends\n{where}")


def _leave(why: str, error: BaseException | None = None) -> None:
    try:
        _saying.acquire()
        # Not the error itself: logging its stack would need more memory, and trigger this again.
        log.critical("%s%s", why, "" if error is None else f" ({error!r})")
    finally:
        # A stuck thread cannot be asked to end; the state on disk is as after a kill.
        os._exit(1)
