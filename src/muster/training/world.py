"""Finds out which rank this process is, however it was started, and lets the ranks talk to each other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

_THREADS = Path("/proc/self/task")
_BLINDLY_S = 0.5
_AT_MOST_S = 5.0
_PAUSE_S = 0.005
_LOOKS = 3


@dataclass(frozen=True)
class RankInfo:
    """Which rank this process is, as its launcher says."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launcher: str = "none"


@dataclass(frozen=True)
class World:
    """All ranks of the training; small things are exchanged on the CPU, gradients on `group`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    launcher: str
    group: dist.ProcessGroup | None = None
    """Where gradients are reduced: NCCL where every rank has a GPU of its own, None for the default (gloo)."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, on the CPU."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        if self.size > 1:
            dist.all_reduce(total)
        return total

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.size

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank; all ranks get the same answer."""
        return bool(self.sum(torch.tensor(float(flag))).item())

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in their order."""
        found = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value)
        return found

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the values that rank 0 has."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, src=0, group=self.group)

    def rest(self) -> None:
        """Wait until nothing of the last exchange is under way here, as before a fork (workers of a DataLoader).

        A process that is forked while a thread of Gloo enters Python can hang for ever.
        """
        rest()

    def leave(self) -> None:
        """Part from the others, at the end of the script."""
        if dist.is_initialized():
            rest()
            dist.destroy_process_group()


def rest() -> None:
    """`World.rest` for who has no world at hand."""
    if dist.is_initialized():
        _wait_for_gloo()


def join(environ: Mapping[str, str] = os.environ) -> World:
    """Join the other ranks; a process alone has nobody to wait for."""
    info = rank_info(environ)
    if info.size == 1:
        return World(0, 1, info.local_rank, info.local_size, _device(info), info.launcher)
    if not dist.is_initialized():
        if info.launcher == "torch":
            dist.init_process_group("gloo")
        else:
            _init_group(info, *meeting_point(info, environ))
    device, group = _choose_device(info)
    return World(info.rank, info.size, info.local_rank, info.local_size, device, info.launcher, group)


def _init_group(info: RankInfo, host: str, port: int) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=info.rank, world_size=info.size)
    except dist.DistNetworkError as error:
        if "EADDRINUSE" not in str(error):
            raise
        raise ValueError(
            f"the port {port} is in use, perhaps by another training. Give mpirun `-x MASTER_PORT=PORT` with another "
            "one, or start the job with Muster, which finds one."
        ) from error


def rank_info(environ: Mapping[str, str]) -> RankInfo:
    """Read the variables of torchrun (or Muster, per process) or of Open MPI, MPICH and Intel MPI."""
    names: tuple[str, ...]
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
    """Each node would train by itself, and nobody would notice."""
    nodes = environ.get("WORLD_SIZE", "1")
    if "RANK" in environ and nodes != "1":
        raise ValueError(
            f"RANK and WORLD_SIZE={nodes} are set, and LOCAL_RANK is not: this is one process on each of {nodes} "
            "nodes, for a launcher. Start the script with torchrun, or give the job a process count "
            "(process_count_per_instance, `muster run --procs`)."
        )


def meeting_point(info: RankInfo, environ: Mapping[str, str]) -> tuple[str, int]:
    """Where rank 0 listens; a bare `mpirun` on one machine needs to say nothing."""
    host = environ.get("MASTER_ADDR")
    if host is None:
        if info.local_size != info.size:
            raise ValueError(
                f"MASTER_ADDR is not set, and the {info.size} ranks are on several nodes. "
                "Give mpirun `-x MASTER_ADDR=ADDRESS_OF_RANK_0`, or start the job with Muster, which sets it."
            )
        host = "127.0.0.1"
    return host, int(environ.get("MASTER_PORT", "29500"))


def _device(info: RankInfo) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", info.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _choose_device(info: RankInfo) -> tuple[torch.device, dist.ProcessGroup | None]:
    """A GPU if every rank has one, and NCCL if none is shared; gloo otherwise."""
    device = _device(info)
    own = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    owned = [""] * info.size
    dist.all_gather_object(owned, own)
    if not all(owned):
        return torch.device("cpu"), None
    return device, dist.new_group(backend="nccl") if len(set(owned)) == info.size else None


def _wait_for_gloo() -> None:
    """Until Gloo's threads rest: one that still puts down its last tensors when Python is gone aborts the process.

    They outlive the process group where DDP was used, and PyTorch has nothing to wait for. A thread that waits for
    Python gets it in the pauses here, so one that sleeps at several looks in a row has nothing left to do.
    """
    if not _THREADS.is_dir():
        time.sleep(_BLINDLY_S)
        return
    looks, deadline = 0, time.monotonic() + _AT_MOST_S
    while looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        looks = looks + 1 if _gloo_rests(_THREADS) else 0


def _gloo_rests(threads: Path) -> bool:
    for thread in threads.iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            # It has ended.
            continue
        if name == "pt_gloo_runloop" and not rest.lstrip().startswith("S"):
            return False
    return True
