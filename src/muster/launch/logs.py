"""Log names: where what a rank prints is kept below the run's files."""

from __future__ import annotations

from collections.abc import Sequence

from muster.launch.layout import Task

MPI_LAUNCHER_LOG = "user_logs/mpi_log.txt"


def process_logs(tasks: Sequence[Task]) -> list[str]:
    """`std_log.txt` for one process, otherwise a file per rank, padded so that they sort."""
    if len(tasks) == 1:
        return ["user_logs/std_log.txt"]
    width = len(str(len(tasks) - 1))
    return [f"user_logs/std_log_process_{task.rank:0{width}}.txt" for task in tasks]


def role_logs(tasks: Sequence[Task]) -> list[str]:
    """A file per node and role."""
    width = len(str(max(task.node_rank for task in tasks)))
    return [f"user_logs/std_log_node_{task.node_rank:0{width}}_{task.role}.txt" for task in tasks]
