"""Whether the kernel killed for want of memory around a keeper. Standard library only, and valid in Python 3.8.

It counts in the memory cgroup of the process that it killed. A rank may have one of its own (`cgexec`, a script,
Slurm), which in version 1 its parent does not count too; and once dead it does not say which. So the cgroups of all
processes are looked up while they live: often at first, and then now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from muster.host import processes

WINDOW_S = 5.0
_FIRST_LOOK_S = 0.05


class MemoryWatch:
    """Remembers the counts of a while ago: only kills around an exit have to do with it."""

    def __init__(self) -> None:
        own = processes.oom_kills()
        self._before = {own.counter: own.kills}
        self._last = dict(self._before)
        self._window_began = time.monotonic()
        self._look_s = _FIRST_LOOK_S
        self._next_look = self._window_began + _FIRST_LOOK_S

    def wait_s(self, now: float) -> float:
        """How long nothing needs to be looked at."""
        return max(0.0, self._next_look - now)

    def look(self, now: float, processes_below: Callable[[], Collection[int]]) -> None:
        """See where the processes are, and what their cgroups count, when it is time."""
        if now < self._next_look:
            return
        for pid in processes_below():
            found = processes.oom_kills_around(pid)
            if found is not None and found.counter not in self._before:
                self._before[found.counter] = self._last[found.counter] = found.kills
        if now - self._window_began >= WINDOW_S:
            self._window_began = now
            self._before, self._last = self._last, {name: self._now(name) for name in self._last}
        self._look_s = min(self._look_s * 2, WINDOW_S)
        self._next_look = now + self._look_s

    def killed(self) -> bool:
        """Whether there was a kill in one of them lately."""
        return any(self._now(name) > kills for name, kills in self._before.items())

    def _now(self, counter: str) -> int:
        kills = processes.oom_kills_at(counter)
        return self._last[counter] if kills is None else kills
