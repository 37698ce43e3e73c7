"""Finds out which rank this process is, however it was started, and lets the ranks exchange values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from muster.runtime.gloo import wait_for_gloo
from muster.runtime.ranks import RankInfo, meeting_point, rank_info

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """All ranks of the training; small values are exchanged on the CPU, gradients on `group`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    launcher: str
    group: dist.ProcessGroup | None = None
    """The group that reduces gradients: NCCL if every rank has its own GPU, None for the default (gloo)."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, on the CPU."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        if self.size > 1:
            dist.all_reduce(total)
        return total

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.size

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; all ranks get the same answer."""
        return bool(self.sum(torch.tensor(float(flag))).item())

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in rank order."""
        found = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value)
        return found

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the values of rank 0."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, src=0, group=self.group)

    def rest(self) -> None:
        """Wait until the last exchange is finished in this process, as before a fork (workers of a DataLoader).

        A process that is forked while a thread of Gloo enters Python can hang for ever.
        """
        rest()

    def leave(self) -> None:
        """Leave the other ranks, at the end of the script."""
        if dist.is_initialized():
            rest()
            dist.destroy_process_group()


def rest() -> None:
    """`World.rest` for callers without a world."""
    if dist.is_initialized():
        wait_for_gloo()


def join(environ: Mapping[str, str] = os.environ) -> World:
    """Join the other ranks; a single process does not wait."""
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
