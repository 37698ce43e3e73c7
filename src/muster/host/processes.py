"""The process tree, and the kernel settings that control it. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_M_MMAP_THRESHOLD = -3
_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None

# They remove shared memory when their clients are gone, so they go last.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    state: str

    @property
    def dead(self) -> bool:
        return self.state in ("Z", "X")


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent's thread ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if _LINUX and os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def allow_tracing(tracer: int) -> None:
    """Let a process and its descendants trace this one, where the kernel allows only parents to (Yama)."""
    if _libc is not None:
        # Without Yama the call does not exist, and is not needed.
        _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)


def set_name(name: str) -> None:
    """What `ps -o comm` shows."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def return_large_blocks() -> None:
    """Return freed buffers to the system at once instead of keeping them in the heap (glibc)."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 256 << 10)


def _prctl(option: int, value: int) -> None:
    if _libc is not None and _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def table() -> dict[int, Process]:
    """Every process of the machine that can be seen."""
    if not _LINUX:
        listing = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid=,stat="], capture_output=True, check=False).stdout
        return parse_ps(listing.decode())
    found = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process is not None}


def read(pid: int) -> Process | None:
    """One process from /proc, or None when it is gone."""
    data = _contents(pid, "stat")
    if not data:
        return None
    # The name is in parentheses and may contain anything, even parentheses and spaces.
    fields = data[data.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[2]), fields[0].decode())


def parse_ps(text: str) -> dict[int, Process]:
    """The process table from `ps`, for systems without /proc."""
    found: dict[int, Process] = {}
    for line in text.splitlines():
        pid, parent, group, state = line.split()[:4]
        found[int(pid)] = Process(int(pid), int(parent), int(group), state[0])
    return found


def descendants(roots: Collection[int], processes: Mapping[int, Process]) -> list[Process]:
    """All descendants of the roots, without the roots themselves."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = list(roots)
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(process.pid for process in below)
    return found


def terminate(targets: Iterable[Process]) -> None:
    """Send SIGTERM; a stopped process is continued, so that it can react."""
    for process in targets:
        if not process.dead:
            send(process.pid, signal.SIGTERM)
            send(process.pid, signal.SIGCONT)


def kill(targets: Collection[Process], spare_cleaners: bool = False) -> None:
    """Send SIGKILL to whole groups at once: no fork can slip out of a group."""
    living = [process for process in targets if not process.dead]
    spared = {process.pid for process in living if spare_cleaners and is_cleaner(process.pid)}
    kept_groups = {process.group for process in living if process.pid in spared}
    own = os.getpgrp()
    for group in {process.group for process in living} - kept_groups - {own, 0, 1}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for process in living:
        if process.pid not in spared:
            send(process.pid, signal.SIGKILL)


def is_part_of_parent(process: Process) -> bool:
    """Whether it is a fork of Python, or a helper of `multiprocessing`: then its parent decides when it ends.

    A training that is told to stop would fail without its data loader's workers before it has saved.
    """
    command = _contents(process.pid, "cmdline")
    if b"from multiprocessing." in command:
        return True
    program = command.partition(b"\0")[0].rpartition(b"/")[2]
    return b"python" in program and command == _contents(process.parent, "cmdline")


def is_cleaner(pid: int) -> bool:
    command = _contents(pid, "cmdline")
    return any(name in command for name in _CLEANERS)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def marked(name: str, value: str) -> list[int]:
    """Processes that carry NAME=VALUE in their environment."""
    wanted = f"{name}={value}".encode()
    return [pid for pid in table() if pid != os.getpid() and wanted in _contents(pid, "environ").split(b"\0")]


def name(pid: int) -> str:
    """What `ps -o comm` shows, even for dead processes."""
    return _contents(pid, "comm").decode(errors="replace").strip()


def command_line(pid: int) -> str:
    return _contents(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")


class OomCount(NamedTuple):
    """How many processes the OOM killer has killed, and the file of the counter."""

    counter: str
    kills: int


def oom_kills(root: str = "/") -> OomCount:
    """The count of this process's own memory cgroup where it has one, so that neighbours do not count; otherwise the
    machine's."""
    return _first_count(root, (*_cgroup_counters(root, "self"), "proc/vmstat")) or OomCount("", 0)


def oom_kills_around(pid: int, root: str = "/") -> OomCount | None:
    """The count of another process's memory cgroup; None where there is no counter, or the process is gone."""
    return _first_count(root, _cgroup_counters(root, str(pid))[:1])


def oom_kills_at(counter: str, root: str = "/") -> int | None:
    """The current value of a counter; None when its cgroup is gone."""
    found = _first_count(root, (counter,))
    return found.kills if found else None


def _first_count(root: str, counters: Iterable[str]) -> OomCount | None:
    for path in counters:
        try:
            with open(root + path, "rb") as file:  # noqa: PTH123
                for line in file:
                    if line.startswith(b"oom_kill "):
                        return OomCount(path, int(line.split()[1]))
        except OSError:
            continue
    return None


def _cgroup_counters(root: str, process: str) -> list[str]:
    """Candidate counter files of a process's memory cgroup, in version 1 and 2."""
    try:
        with open(f"{root}proc/{process}/cgroup") as file:  # noqa: PTH123
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    own = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    if "memory" not in own:
        # A machine's root cgroup has no such file; a container's root is the container's own cgroup.
        return [f"sys/fs/cgroup{own['']}/memory.events"] if "" in own else []
    if own["memory"] == "/":
        return []
    # A container sees its own cgroup at the top, whatever its name on the host.
    return [f"sys/fs/cgroup/memory{path}/memory.oom_control" for path in (own["memory"], "")]


def _contents(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
