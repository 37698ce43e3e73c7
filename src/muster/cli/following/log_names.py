"""Which rank a log stream belongs to. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.wire.runs import RunView

_PROCESS = re.compile(r"std_log_process_(\d+)\.txt$")
_ENVIRONMENT = re.compile(r"environment_node_(\d+)\.txt$")
_BUILD = "environment_build.txt"
"""Logs of environments that were built before the attempt began."""
_TASK = re.compile(r"std_log_node_(\d+)_(\w+)\.txt$")


@dataclass(frozen=True)
class Source:
    """One log with its label."""

    label: str
    """Such as `rank 0`; empty for a run of one process."""
    number: int
    """Chooses its colour."""


def source_of(stream: str) -> Source:
    """The source of a log, derived from its name without asking the server."""
    if match := _PROCESS.search(stream):
        return Source(f"rank {int(match[1])}", int(match[1]))
    if match := _TASK.search(stream):
        return Source(f"{match[2]} {match[1]}", int(match[1]))
    if match := _ENVIRONMENT.search(stream):
        return Source(f"environment {match[1]}", int(match[1]))
    if stream.endswith(_BUILD):
        return Source("environment", 0)
    if stream.endswith("mpi_log.txt"):
        return Source("mpirun", 0)
    return Source("", 0)


def is_build(stream: str) -> bool:
    """Whether a log is that of an environment's build, not of a rank."""
    return _ENVIRONMENT.search(stream) is not None or stream.endswith(_BUILD)


def log_of_rank(view: RunView, rank: int, attempt: int | None = None) -> str | None:
    """The stream of a rank; None where the rank has not started yet."""
    for entry in reversed(view.attempts):
        if attempt is None or entry.number == attempt:
            for candidate in entry.ranks:
                if candidate.rank == rank:
                    return candidate.log
    return None
