"""The ranks as torch.distributed connects them, and the order in which they call it.

Horovod's own controller pairs operations by name, whenever each rank comes to them. Here they are paired by order, so
every operation is announced in the store before it begins: a rank that does another one learns that there, and not
from values that are wrong; and a rank that has joined (`hvd.join()`) learns what it has to take part in.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from datetime import timedelta
from typing import Any, List, Optional, Tuple

import torch
import torch.distributed as dist

from muster.runtime.gloo import wait_for_gloo
from muster.runtime.ranks import RankInfo, meeting_point, rank_info

from ..common.exceptions import HorovodInternalError
from ..places import Membership, place, warn_of_settings

_KEPT = 1000
"""Announcements that stay: nobody is further behind, since later operations have ended."""
_POLL_S = 0.002
_PATIENCE = timedelta(minutes=30)


class Group(Membership):
    """All ranks of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.group: Optional[Any] = None
        """Of torch.distributed; None for the default one."""
        self.has_nccl = False
        self._store: Any = None
        self._owned = False
        self._announced = 0
        self._joins = 0

    def init(self, comm: object = None, process_sets: object = None) -> None:
        """Meet the others; once is enough."""
        if comm is not None or process_sets is not None:
            raise NotImplementedError("hvd.init() takes neither `comm` nor `process_sets` in horovod-compat")
        if self.found is not None:
            return
        warn_of_settings()
        info = rank_info(os.environ)
        own = (info.local_rank, info.local_size)
        self.found = place(info, self._connect(info) if info.size > 1 else [own])
        atexit.register(self.shutdown)

    def _connect(self, info: RankInfo) -> List[Tuple[int, int]]:
        """Returns local rank and size of every rank."""
        self._owned = not dist.is_initialized()
        if self._owned:
            host, port = meeting_point(info, os.environ)
            address = "env://" if info.launcher == "torch" else f"tcp://{host}:{port}"
            whole, _, _ = next(dist.rendezvous(address, info.rank, info.size))
            whole.set_timeout(_PATIENCE)
        else:
            whole = dist.distributed_c10d._get_default_store()
        self._store = dist.PrefixStore("horovod", whole)
        has_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= info.local_size
        self._store.set(f"rank/{info.rank}", json.dumps([info.local_rank, info.local_size, has_gpu]))
        found = [json.loads(self._store.get(f"rank/{rank}")) for rank in range(info.size)]
        self.has_nccl = all(entry[2] for entry in found) and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if self.has_nccl else "gloo"
        if self._owned:
            store = dist.PrefixStore("torch", whole)
            dist.init_process_group(backend, store=store, rank=info.rank, world_size=info.size)
        else:
            self.group = dist.new_group(backend=backend)
        return [(local_rank, local_size) for local_rank, local_size, _ in found]

    def shutdown(self) -> None:
        """Part from the others."""
        if self._owned and dist.is_initialized():
            wait_for_gloo()
            dist.destroy_process_group()
        self.found, self.group, self._store, self._owned = None, None, None, False
        self._announced = self._joins = 0

    def announce(self, kind: str, described: List[Any], name: Optional[str]) -> None:
        """Say which operation is next; raises HorovodInternalError where another rank says something else."""
        if self.size() == 1:
            return
        said = json.dumps([kind, described, name])
        first = self._store.compare_set(f"operation/{self._announced}", "", said).decode()
        if first != said:
            theirs = " ".join(map(str, json.loads(first)))
            raise HorovodInternalError(
                f"rank {self.rank()} calls {kind} {described} {name}, and another rank at the same point {theirs}: "
                "all ranks must call the same operations, of the same shapes and types, in the same order "
                "(real Horovod pairs them by name, horovod-compat by their order)"
            )
        if self.rank() == 0 and self._announced >= _KEPT:
            self._store.delete_key(f"operation/{self._announced - _KEPT}")
        self._announced += 1

    def join(self) -> int:
        """Take part in the others' reductions, with zeros, until all have joined; returns the rank that did so last."""
        if self.size() == 1:
            return 0
        key, self._joins = f"join/{self._joins}", self._joins + 1
        if self._store.add(f"{key}/ranks", 1) == self.size():
            self._store.set(f"{key}/last", json.dumps([self.rank(), self._announced]))
        while True:
            # In this order: what is announced after the last one joined is not for those who wait here.
            is_announced = self._store.check([f"operation/{self._announced}"])
            if self._store.check([f"{key}/last"]):
                last, announced = json.loads(self._store.get(f"{key}/last"))
                if announced == self._announced:
                    return int(last)
            if is_announced:
                self._take_part(json.loads(self._store.get(f"operation/{self._announced}")))
            else:
                time.sleep(_POLL_S)

    def _take_part(self, announcement: List[Any]) -> None:
        kind, described, _ = announcement
        if kind != "allreduce":
            raise HorovodInternalError(
                f"a rank calls {kind} after rank {self.rank()} has joined; only allreduce may follow"
            )
        self._announced += 1
        op, dtype, count, on_gpu = described[:4]
        device = "cuda" if on_gpu else "cpu"
        zeros = torch.zeros(count, dtype=getattr(torch, dtype), device=device)
        dist.all_reduce(zeros, op=getattr(dist.ReduceOp, op), group=self.group)


GROUP = Group()
