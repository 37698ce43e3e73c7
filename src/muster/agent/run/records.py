"""What agent and keeper hand each other as JSON: the launch file, and the keeper's journal.

Standard library only, and valid in the Python 3.8 of an image.
"""

from __future__ import annotations

from typing import Any, List, Literal, TypedDict, Union  # noqa: UP035

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
    """Where Slurm's stand-ins for ranks report, and what starts a rank for one of them."""

    folder: str
    program: str


class LaunchMpi(TypedDict):
    """What a keeper needs to know of an MPI job."""

    fifo: str
    ranks: list[int]
    listen: list[Any] | None
    """Address and port."""
    secret: str
    daemon_env: dict[str, str]
    daemon_log: str
    hostname: str | None
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

    command: list[str]
    inspect: list[str]
    remove: list[str]
    env: dict[str, str]
    ranks: list[int]
    root: str
    journal: str


class StopCommand(TypedDict):
    """What the agent says to a keeper."""

    grace_s: float
    reason: str


# The journal, which the agent also hears line by line


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
    """Every rank that the keeper itself starts has been started."""

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
"""Of a field of an entry."""
