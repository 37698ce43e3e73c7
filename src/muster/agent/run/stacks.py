"""Stack dumps before processes are ended: each Python below a rank writes its stacks to its log.

Standard library only: it is part of the keeper. The answer comes from `muster.runtime.parts.stacks`, in a signal
handler that works while the process hangs; a process without a handler would die of the signal, and is left alone.
Below the stacks follow the lines of the user's own code that they name, which the handler cannot read.
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
    rb"[Tt]imed? ?-?[Oo]ut|DEADLINE|monitoredBarrier|clients joined|onnection ?(?:closed|reset|refused|lost|aborted)"
    rb"|ConnectionE|ConnectionR|[Bb]roken ?pipe|EOFError|IncompleteRead|[Uu]navailable|[Pp]eer|[Ww]ait(?:ed|ing)\b"
    rb"|within \d|\d ?(?:of|/|out of) ?\d+ (?:\w+ )?(?:arrived|came|reached|answered|responded|replied|reported)\b"
    rb"|not all |never (?:came|arrived|joined|sent|answered)|(?:rank|worker) \d+ (?:did|is|has|was|sent)|by rank \d"
    rb"|[Hh]eart ?beat"
    rb"|gloo|NCCL|nccl|[Bb]arrier|[Rr]endezvous|coordinat|gave up|^\S.{0,200}\b(?:ranks?|workers?|peers?)\b"
    rb"|[Rr]emote|[Rr]pc|RPC|xmlrpc|/managers\.py|urllib|/http/|/socket\.py|\b[Ll]ock(?:ed)?\b"
    rb"|\b(?:actor|replica|executor|member|client|trainer|participant|part(?:y|ie)|stage|agent|node|process|server)(?:e?s)?"
    rb"\b[\"': =#]{0,4}[\[({]?\d",
    re.M,
)
_LEFT = re.compile(r"\.muster_stack_\d+_\d+")
_FRAME = re.compile(rb'^  File "([^"]+)", line (\d+) in ', re.M)
_LIBRARY = re.compile(rb"site-packages|dist-packages|/lib(?:64)?/python3|^<")
_MOST_STACKS_BYTES = 1 << 18
_MOST_STACK_BYTES = 1 << 14
_MOST_SOURCES = 24
_MOST_SCRIPT_BYTES = 1 << 20
_LONGEST_SOURCE = 160


def has_waited(log: str) -> bool:
    """Whether a failed rank blames others at the end of its log, so that their stacks matter."""
    try:
        with open(log, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return complains(file.read())
    except OSError:
        return False


def last_said(log: str) -> float | None:
    """When a log was last written to; None: never."""
    try:
        found = os.stat(log)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime if found.st_size else None


def complains(text: bytes) -> bool:
    """Whether the end of a log may be about other ranks."""
    return bool(_WAITED.search(text[-_TAIL_BYTES:]))


def show(living: Iterable[processes.Process], ranks: Mapping[int, int]) -> None:
    """Have each process write its stacks, below a line that says whose they are; `ranks`: pids of ranks."""
    below = [process for process in living if not process.dead and not processes.is_part_of_parent(process)]
    asked = [process for process in below if answers(process.pid)][:_MOST]
    parents = {process.pid: process.parent for process in below}
    logs: dict[tuple[int, int], tuple[int, int]] = {}
    for process in asked:
        rank = _rank_of(process.pid, ranks, parents)
        begun = say(process.pid, f"muster: where rank {rank} (process {process.pid}) was when it was stopped:\n")
        if begun is not None:
            logs.setdefault(begun[0], (process.pid, begun[1]))
        processes.send(process.pid, NUMBER)
        # One after the other, or they would write into each other's lines.
        time.sleep(_PAUSE_S)
    if asked:
        time.sleep(_LAST_S)
    for pid, offset in logs.values():
        _add_sources(pid, offset)


def collect(log: str, folder: str, cwd: str) -> None:
    """Add the stacks of a launcher's processes, which each left a file, to the launcher's log."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _LEFT.fullmatch(entry.name)]
    except OSError:
        return
    shown = b""
    for name in sorted(names, key=lambda name: [int(number) for number in name.split("_")[2:]])[:_MOST]:
        try:
            with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
                stacks = file.read(_MOST_STACK_BYTES)
            if stacks:
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
        except OSError:
            continue
        _, _, rank, pid = name.split("_")
        if stacks:
            shown += f"muster: where rank {rank} (process {pid}) was when it was stopped:\n".encode() + stacks
    if shown:
        try:
            with open(log, "ab") as file:  # noqa: PTH123
                file.write(shown + _sources(shown, "", cwd))
        except OSError:
            return


def answers(pid: int) -> bool:
    """Whether a process has a handler for the signal; without one it would die."""
    mask = _CAUGHT.search(_contents(pid, "status"))
    return NUMBER > 0 and bool(mask and int(mask[1], 16) >> (NUMBER - 1) & 1)


def _rank_of(pid: int, ranks: Mapping[int, int], parents: Mapping[int, int]) -> str:
    """The rank that a launcher gave a process, or the rank that it descends from."""
    own = _RANK.search(_contents(pid, "environ"))
    if own:
        return own[1].decode()
    above: int | None = pid
    while above is not None and above not in ranks:
        above = parents.get(above)
    return str(ranks[above]) if above is not None else "0"


def say(pid: int, line: str) -> tuple[tuple[int, int], int] | None:
    """Write a line to the process's own standard error, where that is a file; returns the file and its size before."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        os.write(descriptor, line.encode())
        return (found.st_dev, found.st_ino), found.st_size
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _add_sources(pid: int, offset: int) -> None:
    """Add the source of the user's own lines that the stacks in a process's log name."""
    try:
        with open(f"/proc/{pid}/fd/2", "rb") as log:  # noqa: PTH123
            log.seek(offset)
            shown = log.read(_MOST_STACKS_BYTES)
        # Paths as the process sees them: in its folder, in its container.
        if text := _sources(shown, f"/proc/{pid}/root", f"/proc/{pid}/cwd"):
            with open(f"/proc/{pid}/fd/2", "ab") as log:  # noqa: PTH123
                log.write(text)
    except OSError:
        return


def _sources(shown: bytes, root: str, cwd: str) -> bytes:
    own = dict.fromkeys((file, int(line)) for file, line in _FRAME.findall(shown) if not _LIBRARY.search(file))
    return b"".join(_source(file, line, root, cwd) for file, line in list(own)[:_MOST_SOURCES])


def _source(file: bytes, line: int, root: str, cwd: str) -> bytes:
    """One line of a script."""
    path = os.fsdecode(file)
    file_path = f"{root}{path}" if path.startswith("/") else f"{cwd}/{path}"
    try:
        with open(file_path, "rb") as script:  # noqa: PTH123
            lines = script.read(_MOST_SCRIPT_BYTES).split(b"\n", line)
    except (OSError, ValueError):
        return b""
    if line < 1 or len(lines) < line:
        return b""
    return b'muster: "%b" line %d: %b\n' % (file, line, lines[line - 1].strip()[:_LONGEST_SOURCE])


def _contents(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
