"""The ranks, connected by torch.distributed, and the order of their operations.

Horovod's own controller pairs operations by name, whenever each rank reaches them. Here they are paired by order, so
every operation is announced in the store before it begins: a rank that calls a different one gets an error instead of
wrong values, and a rank that has joined (`hvd.join()`) learns which operation to take part in. Failures are stored
there too, so that the ranks which wait for the failed one raise the same error.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist

from muster.runtime.gloo import wait_for_gloo
from muster.runtime.ranks import RankInfo, meeting_point, rank_info

from ..common.exceptions import HorovodInternalError
from ..places import Membership, place, warn_of_settings

_STRETCH = 1000
"""Operations after which a rank reports its progress; announcements that all ranks have passed are removed."""
_POLL_S = 0.002
_LOOK = timedelta(seconds=1)
"""How often a waiting rank checks whether another one has failed."""
_PATIENCE = timedelta(minutes=30)


class Group(Membership):
    """All ranks of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.group: Optional[Any] = None
        """The group of torch.distributed; None for the default one."""
        self.has_nccl = False
        self._store: Any = None
        self._whole: Any = None
        """The rendezvous store; it is kept for a second `init`, since rank 0 may host it."""
        self._lives = 0
        self._owned = False
        self._announced = self._forgotten = self._joins = 0
        self._failure: Optional[str] = None

    def init(self, comm: object = None, process_sets: object = None) -> None:
        """Connect to the other ranks; a second call does nothing."""
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
        whole = self._meet(info) if self._owned else dist.distributed_c10d._get_default_store()
        # A new prefix for each `init`, so that entries of an earlier one are not read again.
        self._lives += 1
        self._store = dist.PrefixStore(f"horovod/{self._lives}", whole)
        has_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= info.local_size
        self._store.set(f"rank/{info.rank}", json.dumps([info.local_rank, info.local_size, has_gpu]))
        found = [json.loads(self._store.get(f"rank/{rank}")) for rank in range(info.size)]
        self.has_nccl = all(entry[2] for entry in found) and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if self.has_nccl else "gloo"
        if self._owned:
            store = dist.PrefixStore(f"torch/{self._lives}", whole)
            dist.init_process_group(backend, store=store, rank=info.rank, world_size=info.size)
        else:
            self.group = dist.new_group(backend=backend)
        return [(local_rank, local_size) for local_rank, local_size, _ in found]

    def _meet(self, info: RankInfo) -> Any:
        if self._whole is None:
            host, port = meeting_point(info, os.environ)
            address = "env://" if info.launcher == "torch" else f"tcp://{host}:{port}"
            self._whole, _, _ = next(dist.rendezvous(address, info.rank, info.size))
            self._whole.set_timeout(_PATIENCE)
        return self._whole

    def shutdown(self) -> None:
        """Leave the other ranks."""
        if self._store is not None:
            with contextlib.suppress(RuntimeError):  # the store's host has ended
                self._store.set("left", f"rank {self.rank()} has left (its script ended, or called hvd.shutdown())")
        if self._owned and dist.is_initialized():
            wait_for_gloo()
            dist.destroy_process_group()
        self.found, self.group, self._store, self._owned = None, None, None, False
        self._announced = self._forgotten = self._joins = 0
        self._failure = None

    def announce(self, kind: str, described: List[Any], name: Optional[str]) -> None:
        """Announce the next operation; raises HorovodInternalError where another rank announced a different one."""
        if self.size() == 1:
            return
        if self._failure is not None:
            raise HorovodInternalError(
                f"{self._failure}. Nothing works after it: hvd.shutdown() and hvd.init() start again"
            )
        said = json.dumps([kind, described, name])
        first = self._asked(lambda: self._store.compare_set(f"operation/{self._announced}", "", said)).decode()
        if first != said:
            theirs = " ".join(map(str, json.loads(first)))
            raise self._failed(
                f"rank {self.rank()} calls {kind} {described} {name}, and another rank at the same point {theirs}: "
                "all ranks must call the same operations, of the same shapes and types, in the same order "
                "(real Horovod pairs them by name, horovod-compat by their order)"
            )
        self._count()

    def wait(self, work: Any) -> None:
        """Wait for a work of torch.distributed; raises HorovodInternalError on every rank once one has failed."""
        while True:
            try:
                return work.wait() if self.has_nccl else work.wait(_LOOK)
            except RuntimeError as error:
                if work.is_completed() and self._ended_badly(work):
                    known = self._said("failed") or self._said("left")
                    raise self._failed(known or f"another rank cannot be reached: {error}") from error
                if (said := self._said("failed")) is not None:
                    raise self._failed(said) from None

    @staticmethod
    def _ended_badly(work: Any) -> bool:
        """Whether the work itself failed, rather than completing just after the wait timed out."""
        try:
            work.wait()
        except RuntimeError:
            return True
        return False

    def _said(self, key: str) -> Optional[str]:
        """A rank's message in the store: why it failed, or that it left."""
        if self._asked(lambda: self._store.check([key])):
            return str(self._asked(lambda: self._store.get(key)).decode())
        return None

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except RuntimeError as error:
            self._failure = f"rank 0 has left, or cannot be reached: {error}"
            raise HorovodInternalError(self._failure) from error

    def _failed(self, said: str) -> HorovodInternalError:
        """The error to raise here; it is stored, so that ranks waiting for this one raise it as well."""
        self._failure = said
        self._asked(lambda: self._store.compare_set("failed", "", said))
        return HorovodInternalError(said)

    def _count(self) -> None:
        """Count an operation; now and then remove the announcements that every rank has passed."""
        self._announced += 1
        if self._announced % _STRETCH:
            return
        self._store.set(f"passed/{self.rank()}", str(self._announced))
        marks = [f"passed/{rank}" for rank in range(self.size())]
        if self.rank() == 0 and self._store.check(marks):
            passed = min(int(mark) for mark in self._store.multi_get(marks))
            for number in range(self._forgotten, passed):
                self._store.delete_key(f"operation/{number}")
            self._forgotten = passed

    def join(self) -> int:
        """Take part in the others' reductions, with zeros, until all have joined; returns the rank that joined last."""
        if self.size() == 1:
            return 0
        key, self._joins = f"join/{self._joins}", self._joins + 1
        if self._store.add(f"{key}/ranks", 1) == self.size():
            self._store.set(f"{key}/last", json.dumps([self.rank(), self._announced]))
        idle = False
        while True:
            # The order matters: operations announced after the last rank joined are not for ranks that wait here, and
            # a rank may leave once all have joined.
            gone = (self._said("failed") or self._said("left")) if idle else None
            is_announced = self._store.check([f"operation/{self._announced}"])
            if self._store.check([f"{key}/last"]):
                last, announced = json.loads(self._store.get(f"{key}/last"))
                if announced == self._announced:
                    return int(last)
            idle = not is_announced
            if is_announced:
                self._take_part(json.loads(self._store.get(f"operation/{self._announced}")))
            elif gone is not None:
                raise self._failed(f"{gone}, and rank {self.rank()} waits in hvd.join()")
            else:
                time.sleep(_POLL_S)

    def _take_part(self, announcement: List[Any]) -> None:
        kind, described, _ = announcement
        asked = f"{kind} with op=hvd.{described[4]}" if kind == "allreduce" else kind
        if kind != "allreduce" or described[4] not in ("Average", "Sum"):
            raise self._failed(
                f"a rank calls {asked} after rank {self.rank()} has joined; only allreduce with op=hvd.Average or "
                "hvd.Sum may follow"
            )
        self._count()
        op, dtype, count, on_gpu = described[:4]
        device = "cuda" if on_gpu else "cpu"
        zeros = torch.zeros(count, dtype=getattr(torch, dtype), device=device)
        self.wait(dist.all_reduce(zeros, op=getattr(dist.ReduceOp, op), group=self.group, async_op=True))


GROUP = Group()
