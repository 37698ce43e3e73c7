"""Where processes are before they are ended: each Python below a rank is asked to write its stacks to its log.

Standard library only: it is part of the keeper. The answer comes from `muster.runtime.parts.stacks`, in a signal
handler that works while the process hangs; a process without a handler would die of the signal, and is left alone.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Iterable, Mapping

from muster.host import processes

NUMBER = getattr(signal, "SIGRTMAX", 0) - 6
_MOST = 64
_PAUSE_S = 0.004
_LAST_S = 0.02
_TAIL_BYTES = 4096
_CAUGHT = re.compile(rb"^SigCgt:\s*([0-9a-f]+)", re.M)
_RANK = re.compile(rb"(?:^|\0)(?:RANK|OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)")
_WAITED = re.compile(
    rb"[Tt]imed out|[Tt]ime ?out|Connection (?:closed|reset|refused)|monitoredBarrier|clients joined|lost (?:a )?peer"
)


def has_waited(log: str) -> bool:
    """Whether a rank that failed complains of others at the end of its log, so that it matters where those are."""
    try:
        with open(log, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return bool(_WAITED.search(file.read()))
    except OSError:
        return False


def show(living: Iterable[processes.Process], ranks: Mapping[int, int]) -> None:
    """Have each process write its stacks, under a line that says whose they are; `ranks`: pids of ranks."""
    below = [process for process in living if not process.dead and not processes.is_part_of_parent(process)]
    asked = [process for process in below if answers(process.pid)][:_MOST]
    parents = {process.pid: process.parent for process in below}
    for process in asked:
        rank = _rank_of(process.pid, ranks, parents)
        say(process.pid, f"muster: where rank {rank} (process {process.pid}) was when it was stopped:\n")
        processes.send(process.pid, NUMBER)
        # One after the other, or they would write into each other's lines.
        time.sleep(_PAUSE_S)
    if asked:
        time.sleep(_LAST_S)


def answers(pid: int) -> bool:
    """Whether a process has a handler for the signal; one without would die of it."""
    mask = _CAUGHT.search(_contents(pid, "status"))
    return NUMBER > 0 and bool(mask and int(mask[1], 16) >> (NUMBER - 1) & 1)


def _rank_of(pid: int, ranks: Mapping[int, int], parents: Mapping[int, int]) -> str:
    """The rank that a launcher gave a process, or that of the rank below which it runs."""
    own = _RANK.search(_contents(pid, "environ"))
    if own:
        return own[1].decode()
    above: int | None = pid
    while above is not None and above not in ranks:
        above = parents.get(above)
    return str(ranks[above]) if above is not None else "0"


def say(pid: int, line: str) -> None:
    """A line in the process's own standard error, where that is a file."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.write(descriptor, line.encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _contents(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
