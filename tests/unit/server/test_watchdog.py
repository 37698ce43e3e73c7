"""A process in which a new thread never begins ends by itself; one that only starts many threads does not."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType

from muster.server import watchdog

DIES_AT_BIRTH = """
import threading
from muster.server import watchdog
watchdog.watch(tick_s=0.01, ticks=5)
threading._start_new_thread = lambda *_: 0
if hasattr(threading, "_start_joinable_thread"):
    threading._start_joinable_thread = lambda *_, **__: None
threading.Thread(target=print).start()
print("not reached")
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


def _a_frame() -> FrameType:
    return sys._getframe()
