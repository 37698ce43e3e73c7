"""A process without memory ends by itself, rather than wait for a thread that never begins or go on by halves."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType

import pytest

from muster.host import watchdog

DIES_AT_BIRTH = """
import threading
from muster.host import watchdog
watchdog.watch(tick_s=0.01, ticks=5)
threading._start_new_thread = lambda *_: 0
if hasattr(threading, "_start_joinable_thread"):
    threading._start_joinable_thread = lambda *_, **__: None
threading.Thread(target=print).start()
print("not reached")
"""


SAYS = """
import logging, sys, threading, time
from muster.host import watchdog
logging.basicConfig(level=logging.INFO)
watchdog.end_without_memory()

def fail():
    raise MemoryError

class Dies:
    def __del__(self):
        raise MemoryError

def died_at_birth():
    Dies()

def chained():
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise KeyError("what came of it")
    except KeyError as error:
        logging.error("a request", exc_info=error)

"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_process_that_waits_for_a_thread_which_died_at_birth_ends() -> None:
    done = _run(DIES_AT_BIRTH)
    assert (done.returncode, done.stdout) == (1, "")
    assert "never began" in done.stderr
    assert "Thread(target=print).start()" in done.stderr or "in <module>" in done.stderr


def test_a_thread_that_starts_others_one_after_the_other_counts_as_one_that_goes_on() -> None:
    one, other = _a_frame(), _a_frame()
    once = watchdog.seen_again({}, {7: one})
    assert watchdog.seen_again(once, {7: one}) == {7: (one, 2)}
    assert watchdog.seen_again(once, {7: other}) == {7: (other, 1)}
    assert watchdog.seen_again(once, {}) == {}


@pytest.mark.parametrize(
    "code",
    [
        "logging.error('a loop', exc_info=MemoryError())",
        "logging.error('a request', exc_info=RuntimeError(\"can't start new thread\"))",
        "threading.Thread(target=fail).start(); time.sleep(60)",
        "died_at_birth(); time.sleep(60)",
        "chained()",
    ],
)
def test_a_process_in_which_memory_was_used_up_ends_wherever_that_is_said(code: str) -> None:
    done = _run(SAYS + code + "\nprint('goes on')")
    assert (done.returncode, done.stdout) == (1, "")
    assert "memory was used up" in done.stderr


@pytest.mark.parametrize(
    "error", ["ValueError('no memory')", "RuntimeError('another')", "OSError(12, 'Cannot allocate')"]
)
def test_other_errors_end_nobody(error: str) -> None:
    done = _run(SAYS + f"logging.error('a loop', exc_info={error})\nprint('goes on')")
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def _a_frame() -> FrameType:
    return sys._getframe()
