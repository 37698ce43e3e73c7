"""Which rank this process is, from its launcher's environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Tuple


@dataclass(frozen=True)
class RankInfo:
    """Which rank this process is, according to its launcher."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launcher: str = "none"


def rank_info(environ: Mapping[str, str]) -> RankInfo:
    """Read the variables of torchrun (or Muster, per process) or of Open MPI, MPICH and Intel MPI."""
    names: Tuple[str, ...]
    if "RANK" in environ and "WORLD_SIZE" in environ and "LOCAL_RANK" in environ:
        names, launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), "torch"
    elif "OMPI_COMM_WORLD_RANK" in environ:
        launcher = "mpi"
        names = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    elif "PMI_RANK" in environ:
        names, launcher = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), "mpi"
    else:
        _refuse_one_for_each_node(environ)
        return RankInfo()
    rank, size, local_rank, local_size = (environ.get(name) for name in names)
    return RankInfo(int(rank or 0), int(size or 1), int(local_rank or 0), int(local_size or 1), launcher)


def _refuse_one_for_each_node(environ: Mapping[str, str]) -> None:
    """Refuse one process per node without a launcher: each node would train alone, unnoticed."""
    nodes = environ.get("WORLD_SIZE", "1")
    if "RANK" in environ and nodes != "1":
        raise ValueError(
            f"RANK and WORLD_SIZE={nodes} are set, and LOCAL_RANK is not: this is one process on each of {nodes} "
            "nodes, for a launcher. Start the script with torchrun, or give the job a process count "
            "(process_count_per_instance, `muster run --procs`)."
        )


def meeting_point(info: RankInfo, environ: Mapping[str, str]) -> Tuple[str, int]:
    """The address where rank 0 listens; a bare `mpirun` on one machine need not set it."""
    host = environ.get("MASTER_ADDR")
    if host is None:
        if info.local_size != info.size:
            raise ValueError(
                f"MASTER_ADDR is not set, and the {info.size} ranks are on several nodes. "
                "Give mpirun `-x MASTER_ADDR=ADDRESS_OF_RANK_0`, or start the job with Muster, which sets it."
            )
        host = "127.0.0.1"
    return host, int(environ.get("MASTER_PORT", "29500"))
