"""Where the Python processes of ranks are, without stopping them: by py-spy, or by the handler that each rank has.

The handler (`muster.runtime.parts.stacks`) writes to the rank's log, where it is read from; py-spy leaves no trace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any, Dict, List, NamedTuple  # noqa: UP035

from muster.agent.run import stacks
from muster.agent.run.records import SessionCommand
from muster.agent.run.sessions.carrier import Carrier, Trouble
from muster.agent.run.sessions.session_rank import SessionRank
from muster.host import frames, processes

_MOST = 512
_AT_ONCE = 8
_PY_SPY_S = 20.0
_HANDLER_S = 2.0
_QUIET_S = 0.05
_DUMP_BYTES = 1 << 20
_LAST_BYTES_S = 60.0
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):")

Thread = Dict[str, Any]  # noqa: UP006
Report = Dict[str, Any]  # noqa: UP006


class Found(NamedTuple):
    """A Python process of a rank."""

    rank: int
    pid: int
    command: str


def carry(command: SessionCommand, carrier: Carrier, ranks: Mapping[int, SessionRank]) -> None:
    """Send one report of all Python processes here, or of one rank's."""
    wanted = command["rank"]
    chosen = [target for target in ranks.values() if target.pid and wanted in (None, target.rank)]
    if not chosen:
        raise Trouble("no rank runs here" if wanted is None else f"rank {wanted} is not running")
    found = [item for target in chosen for item in pythons(target)][:_MOST]
    program = py_spy(command["py_spy"], chosen[0].env)
    reports = list(_by_py_spy(program, found)) if program else [_by_handler(item) for item in found]
    carrier.say(
        frames.DATA, json.dumps({"processes": reports, "how": "py-spy" if program else "faulthandler"}).encode()
    )
    carrier.say_exit(0)
    carrier.finish(_LAST_BYTES_S)


def pythons(target: SessionRank) -> Iterator[Found]:
    """The Python processes at and below a rank, the first one first."""
    if target.pid is None:
        return
    below = [process.pid for process in processes.descendants([target.pid], processes.table()) if not process.dead]
    for pid in (target.pid, *sorted(below)):
        if is_python(pid):
            yield Found(target.rank, pid, processes.command_line(pid).strip()[:500])


def is_python(pid: int) -> bool:
    """Whether its program is Python; a script that starts Python does not count."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119
    except OSError:
        return False
    return program.startswith(("python", "pypy"))


def py_spy(agents: str, env: Mapping[str, str]) -> str | None:
    """The path of py-spy: next to the agent, or on the rank's PATH."""
    if agents and os.access(agents, os.X_OK):
        return agents
    return shutil.which("py-spy", path=env.get("PATH"))


def _by_py_spy(program: str, found: List[Found]) -> Iterator[Report]:  # noqa: UP006
    """A few at once: each takes a fifth of a second to start."""
    for begin in range(0, len(found), _AT_ONCE):
        begun = [(item, _spy(program, item.pid)) for item in found[begin : begin + _AT_ONCE]]
        for item, child in begun:
            yield _spied(item, child)


def _spy(program: str, pid: int) -> subprocess.Popen[bytes]:
    command = [program, "dump", "--json", "--pid", str(pid)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _spied(item: Found, child: subprocess.Popen[bytes]) -> Report:
    try:
        output, errors = child.communicate(timeout=_PY_SPY_S)
        threads = spied_threads(json.loads(output)) if child.returncode == 0 else None
    except subprocess.TimeoutExpired:
        child.kill()
        _, errors = child.communicate()
        threads, errors = None, f"py-spy did not answer within {_PY_SPY_S:g} s".encode()
    except ValueError:
        threads, errors = None, b"what py-spy printed cannot be read"
    if threads is not None:
        return _report(item, threads)
    by_handler = _by_handler(item)
    if by_handler["trouble"]:
        errors_text = errors.decode(errors="replace").strip().splitlines()
        by_handler["trouble"] = f"py-spy: {errors_text[0] if errors_text else 'failed'}; {by_handler['trouble']}"
    return by_handler


def spied_threads(dump: Any) -> List[Thread]:  # noqa: UP006
    """What `py-spy dump --json` prints; the main thread first."""
    ordered = sorted(dump, key=lambda thread: thread.get("os_thread_id") != thread.get("pid"))
    return [
        {
            "name": thread.get("thread_name")
            or ("MainThread" if thread.get("os_thread_id") == thread.get("pid") else ""),
            "frames": [
                {"function": call["name"], "file": call["filename"], "line": int(call["line"])}
                for call in thread["frames"]
            ],
        }
        for thread in ordered
    ]


def _by_handler(item: Found) -> Report:
    """Have the process dump its stacks to its own standard error, and read them there."""
    if not stacks.answers(item.pid):
        return _report(item, [], "it has no handler that dumps its stacks (MUSTER_HOOKS without `stacks`)")
    try:
        log = os.open(f"/proc/{item.pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return _report(item, [], f"its standard error cannot be read: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(log).st_mode):
            return _report(item, [], "its standard error is not a file: install py-spy to see it")
        begin = os.fstat(log).st_size
        stacks.say(item.pid, f"muster: somebody asks where rank {item.rank} (process {item.pid}) is:\n")
        processes.send(item.pid, stacks.NUMBER)
        threads = handler_threads(_written(log, begin))
    finally:
        os.close(log)
    return _report(item, threads, "" if threads else "it did not dump its stacks")


def _written(log: int, begin: int) -> str:
    """What was written after `begin`, once it is a dump that no longer grows."""
    deadline = time.monotonic() + _HANDLER_S
    size, since = begin, time.monotonic()
    while time.monotonic() < deadline:
        now = os.fstat(log).st_size
        if now != size:
            size, since = now, time.monotonic()
        text = os.pread(log, min(size - begin, _DUMP_BYTES), begin).decode(errors="replace")
        if "most recent call first" in text and time.monotonic() - since > _QUIET_S:
            return text
        time.sleep(0.005)
    return os.pread(log, _DUMP_BYTES, begin).decode(errors="replace")


def handler_threads(text: str) -> List[Thread]:  # noqa: UP006
    """What `faulthandler` writes; the main thread, which it writes last, first."""
    threads: List[Thread] = []  # noqa: UP006
    for line in text.splitlines():
        head, call = _THREAD.match(line), _FRAME.match(line)
        if head:
            threads.append({"name": head["name"] or "", "frames": []})
        elif call and threads:
            number = int(call["line"]) if call["line"].isdigit() else 0
            threads[-1]["frames"].append({"function": call["function"], "file": call["file"], "line": number})
        elif threads and threads[-1]["frames"] and not line.startswith("  "):
            # Output of the rank after the dump.
            continue
    if threads:
        threads[-1]["name"] = threads[-1]["name"] or "MainThread"
    return threads[::-1]


def _report(item: Found, threads: List[Thread], trouble: str = "") -> Report:  # noqa: UP006
    return {"rank": item.rank, "pid": item.pid, "command": item.command, "threads": threads, "trouble": trouble}
