"""Whether the kernel's OOM killer struck around a keeper. Standard library only, and valid in Python 3.8.

It counts kills in the memory cgroup of the killed process. A rank may have a cgroup of its own (`cgexec`, a script,
Slurm), whose kills version 1 does not add to the parent's; and a dead process no longer shows its cgroup. So the
cgroups of all processes are looked up while they live: often at first, less often later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from muster.host import processes

WINDOW_S = 5.0
_FIRST_LOOK_S = 0.05


class MemoryWatch:
    """Keeps the counts of a while ago: only kills around an exit are related to it."""

    def __init__(self) -> None:
        own = processes.oom_kills()
        self._before = {own.counter: own.kills}
        self._last = dict(self._before)
        self._window_began = time.monotonic()
        self._look_s = _FIRST_LOOK_S
        self._next_look = self._window_began + _FIRST_LOOK_S

    def wait_s(self, now: float) -> float:
        """How long until the next look."""
        return max(0.0, self._next_look - now)

    def look(self, now: float, processes_below: Callable[[], Collection[int]]) -> None:
        """Record the cgroups of the processes and their counts, when it is time."""
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
