"""Formats shared by agent, keepers and the programs around mpirun: launch file, journal, tables, channels.

Standard library only, and valid in the Python 3.8 of an image.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Dict, List, Literal, Tuple, TypedDict, Union, final  # noqa: UP035

from muster.host import clock

_DESCRIPTORS = 8
_MOST_DESCRIPTORS = 256
"""Limit of received descriptors that were not taken yet; no honest sender reaches it."""
_LONGEST_LINE = 4 << 20

# The launch file


class LaunchRank(TypedDict):
    """One process to start, with everything final."""

    rank: int
    program: str
    """Absolute path; empty when PATH has no such program."""
    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str
    essential: bool


class LaunchPmix(TypedDict):
    """Where Slurm's stand-ins for ranks report, and the program that starts a rank for one of them."""

    folder: str
    program: str


class LaunchMpi(TypedDict):
    """What a keeper needs to know about an MPI job."""

    fifo: str
    ranks: list[int]
    listen: list[Any] | None
    """Address and port."""
    secret: str
    daemon_env: dict[str, str]
    daemon_log: str
    hostname: str | None
    """The name of a node that shares its machine with others of the job."""
    pmix: LaunchPmix | None


class Launch(TypedDict):
    """What a keeper starts: `launch.json`."""

    ranks: list[LaunchRank]
    whole_gang: bool
    journal: str
    stop_file: str
    grace_failure_s: float
    kill_after_term_s: float
    mpi: LaunchMpi | None


class LaunchContainer(TypedDict):
    """The container that a keeper's ranks run in: `container.json`."""

    kind: str
    """container | sandbox"""
    command: list[str]
    inspect: list[str]
    remove: list[str]
    env: dict[str, str]
    ranks: list[int]
    root: str
    journal: str


class RankCommand(TypedDict):
    """The command of one rank that mpirun starts."""

    argv: list[str]
    expand: bool
    env: dict[str, str]
    cwd: str
    log: str


class RankTable(TypedDict):
    """The ranks of a node, for `mpi/rank.py`."""

    name: str
    fifo: str
    stop_file: str
    library: str
    ranks: dict[str, RankCommand]


class RemoteTable(TypedDict):
    """The nodes of a job, for `mpi/remote.py`."""

    secret: str
    fifo: str
    hosts: dict[str, tuple[str, int]]


@final
class StopCommand(TypedDict):
    """Tells a keeper to stop its ranks."""

    grace_s: float
    reason: str


@final
class SessionCommand(TypedDict):
    """Tells a keeper to begin a session; the descriptor of the tunnel's other end comes along."""

    session: str
    """shell | stacks | port"""
    rank: int | None
    command: list[str]
    terminal: list[Any] | None
    """Rows, columns and type."""
    port: int
    addresses: list[str]
    """Addresses that the rank may listen on."""
    py_spy: str
    """The agent's py-spy; empty: it has none."""


# The journal, which the agent also receives line by line


class KeeperEntry(TypedDict):
    kind: Literal["keeper"]
    at: float
    pid: int


class StartedEntry(TypedDict):
    kind: Literal["started"]
    at: float
    rank: int
    pid: int


class RunningEntry(TypedDict):
    """All ranks that the keeper itself starts have been started."""

    kind: Literal["running"]
    at: float


class RefusedEntry(TypedDict):
    """A rank could not be started."""

    kind: Literal["refused"]
    at: float
    rank: int
    message: str
    exit_code: int


class ExitedRequired(TypedDict):
    kind: Literal["exited"]
    at: float
    rank: int
    exit_code: int | None
    signal: int | None
    expected: bool


class ExitedEntry(ExitedRequired, total=False):
    max_rss_kb: int
    core_dumped: bool
    oom_killed: bool
    lost_with: str
    """Nobody saw its end."""
    waited: bool
    """Its log blames other ranks."""
    said_at: float
    """When it last wrote to its log."""


class SignalledEntry(TypedDict):
    """The ranks get a signal."""

    kind: Literal["stopping", "killing"]
    at: float
    reason: str
    ranks: list[int]
    other_pids: list[int]


class EndedEntry(TypedDict):
    kind: Literal["ended"]
    at: float
    reason: str


Entry = Union[  # noqa: UP007
    KeeperEntry, StartedEntry, RunningEntry, RefusedEntry, ExitedEntry, SignalledEntry, EndedEntry
]

Value = Union[None, bool, int, float, str, List[int]]  # noqa: UP006, UP007
"""The type of an entry's field."""


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def entry_line(kind: str, **data: Value) -> bytes:
    """A line of the journal."""
    return json.dumps({"kind": kind, "at": clock.now(), **data}).encode() + b"\n"


_NUMBER, _TEXT, _FLAG, _ABSENT = (int,), (str,), (bool,), (int, type(None))
_FIELDS: Dict[str, Dict[str, Tuple[type, ...]]] = {  # noqa: UP006
    "keeper": {"pid": _NUMBER},
    "started": {"rank": _NUMBER, "pid": _NUMBER},
    "running": {},
    "refused": {"rank": _NUMBER, "message": _TEXT, "exit_code": _NUMBER},
    "exited": {"rank": _NUMBER, "exit_code": _ABSENT, "signal": _ABSENT, "expected": _FLAG},
    "stopping": {"reason": _TEXT, "ranks": (list,)},
    "killing": {"reason": _TEXT, "ranks": (list,)},
    "ended": {"reason": _TEXT},
}
_MORE: Dict[str, Tuple[type, ...]] = {  # noqa: UP006
    "max_rss_kb": _ABSENT, "core_dumped": _FLAG, "oom_killed": _FLAG, "lost_with": _TEXT, "waited": _FLAG,
    "said_at": (int, float), "other_pids": (list,),
}  # fmt: skip
_MOST_TEXT, _MOST_NUMBER, _MOST_ITEMS = 4096, 1 << 53, 10_000


def entry_of(value: Any) -> Entry | None:
    """Validate an entry from an untrusted sender; None where it is not a valid entry."""
    fields = _FIELDS.get(value["kind"]) if isinstance(value, dict) and isinstance(value.get("kind"), str) else None
    if fields is None or not _is_like(value.get("at"), (int, float)):
        return None
    known = {"kind": value["kind"], "at": value["at"]}
    for name, kinds in {**_MORE, **fields}.items():
        if name in fields or name in value:
            if not _is_like(value.get(name), kinds):
                return None
            known[name] = value.get(name)
    return known  # type: ignore[return-value]


def _is_like(value: Any, kinds: Tuple[type, ...]) -> bool:  # noqa: UP006
    if type(value) not in kinds:
        return False
    if isinstance(value, str):
        # A lone surrogate is not text.
        return len(value) <= _MOST_TEXT and value.encode("utf-8", "ignore").decode() == value
    if isinstance(value, list):
        return len(value) <= _MOST_ITEMS and all(_is_like(item, _NUMBER) for item in value)
    return not isinstance(value, (int, float)) or -_MOST_NUMBER < value < _MOST_NUMBER


class Channel:
    """A socket on which both sides send JSON values, one per line, some with a descriptor."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._unread = b""
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> list[Any] | None:
        """The values that have arrived, waiting for some; None once the other side is gone."""
        descriptors: list[int] = []
        try:
            data = self._receive(descriptors)
        except OSError:
            data = b""
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        *lines, self._unread = (self._unread + data).split(b"\n")
        if not data or len(self._unread) > _LONGEST_LINE or len(self._descriptors) > _MOST_DESCRIPTORS:
            return None
        return [value for value in map(_parsed, lines) if value is not None]

    def _receive(self, descriptors: list[int]) -> bytes:
        size = array.array("i").itemsize
        data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(_DESCRIPTORS * size))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % size])
                descriptors += found
        return data

    def take_descriptor(self) -> int | None:
        """The descriptor that came with the oldest value that has one."""
        return self._descriptors.pop(0) if self._descriptors else None

    def send(self, line: bytes, descriptor: int | None = None) -> bool:
        """Send a line without blocking on a busy or vanished receiver; False when it was not sent."""
        along = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            return self.socket.sendmsg([line], along, socket.MSG_DONTWAIT) == len(line)
        except OSError:
            return False

    def close(self) -> None:
        self.socket.close()
        while self._descriptors:
            os.close(self._descriptors.pop())
