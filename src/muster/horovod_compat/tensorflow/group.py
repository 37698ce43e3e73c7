"""The ranks, connected by MPI through mpi4py; operations on NumPy arrays.

Before each operation all ranks exchange what they are about to do. If they differ, all raise an error with both calls;
ranks that have joined (`hvd.join()`) learn which operation to take part in. A rank that ends announces it in the same
way: MPI itself would let the others wait for ever.
"""

from __future__ import annotations

import atexit
import os
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from muster.runtime.ranks import RankInfo, rank_info

from ..common.exceptions import HorovodInternalError
from ..places import Membership, place, warn_of_settings
from ..reduction import NAMES, Adasum, Average, Max, Min, Product, Sum, check_adasum, in_pairs

Said = Tuple[str, Any, Optional[str]]
Arrays = Sequence[Any]
_LEFT: Said = ("left", None, None)
_MISSING = "horovod.tensorflow needs mpi4py, which is not installed: `environment: horovod-compat-cpu` has it"


class Group(Membership):
    """All ranks of the job."""

    def __init__(self) -> None:
        super().__init__()
        self._comm: Any = None
        self._mpi: Any = None
        self._others_are_there = False
        self._gone = 0

    def init(self, comm: object = None, process_sets: object = None) -> None:
        """Connect to the other ranks; a second call does nothing."""
        if comm is not None or process_sets is not None:
            raise NotImplementedError("hvd.init() takes neither `comm` nor `process_sets` in horovod-compat")
        if self.found is not None:
            return
        warn_of_settings()
        info = rank_info(os.environ)
        if info.size == 1:
            self.found = place(info, [(info.local_rank, info.local_size)])
            return
        try:
            from mpi4py import MPI
        except ModuleNotFoundError as error:
            raise ImportError(_MISSING) from error
        self._mpi, self._comm = MPI, MPI.COMM_WORLD.Dup()
        if self._comm.size != info.size:
            raise ValueError(
                f"there are {info.size} ranks, and MPI knows {self._comm.size}: horovod.tensorflow needs ranks that "
                "mpirun started (`distribution: {type: mpi}`)"
            )
        own = RankInfo(self._comm.rank, self._comm.size, info.local_rank, info.local_size, info.launcher)
        self.found = place(own, self._comm.allgather((info.local_rank, info.local_size)))
        self._others_are_there = True
        atexit.register(self.shutdown)

    def shutdown(self) -> None:
        """Leave the other ranks, which learn of it with their next call or are leaving as well."""
        if self._others_are_there:
            self._comm.allgather(_LEFT)
        self._others_are_there = False
        self.found = self._comm = None

    def reduce(
        self, arrays: Arrays, op: int, name: Optional[str], before: float = 1.0, after: float = 1.0
    ) -> List[Any]:
        """Reduce arrays over all ranks, in one exchange for each type."""
        factors = () if (before, after) == (1.0, 1.0) else (f"times {before} before and {after} after",)
        self._agree(("allreduce", [op, [(array.dtype.str, array.shape) for array in arrays], *factors], name))
        scaled = [_scaled(array, before) for array in arrays]
        reduced = self._adasum(scaled) if op == Adasum else self._reduced(scaled, op)
        return [self._finished(array, op, after) for array in reduced]

    def _finished(self, array: Any, op: int, after: float) -> Any:
        array = _scaled(array, after)
        if op != Average or self.size() == 1:
            return array
        is_whole = np.issubdtype(array.dtype, np.integer)
        return (np.trunc(array / self.size()) if is_whole else array / self.size()).astype(array.dtype)

    def _reduced(self, arrays: Arrays, op: int) -> List[Any]:
        if self.size() == 1:
            return list(arrays)
        operation = getattr(self._mpi, {Average: "SUM", Sum: "SUM", Min: "MIN", Max: "MAX", Product: "PROD"}[op])
        found: List[Any] = [None] * len(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            places = [at for at, array in enumerate(arrays) if array.dtype == dtype]
            flat = _known(np.concatenate([arrays[at].reshape(-1) for at in places]))
            self._comm.Allreduce(self._mpi.IN_PLACE, flat, op=operation)
            ends = np.cumsum([arrays[at].size for at in places])[:-1]
            for at, part in zip(places, np.split(flat, ends)):
                found[at] = part.astype(dtype, copy=False).reshape(arrays[at].shape)
        return found

    def _adasum(self, arrays: Arrays) -> List[Any]:
        check_adasum(self.size())
        of_ranks = self._comm.allgather(list(arrays)) if self.size() > 1 else [list(arrays)]
        return [in_pairs([of_rank[at] for of_rank in of_ranks], _adasum) for at in range(len(arrays))]

    def gather(self, arrays: Arrays, name: Optional[str]) -> List[Any]:
        """Concatenate all ranks' arrays along the first dimension, which may differ."""
        if any(array.ndim == 0 for array in arrays):
            raise ValueError("allgather joins tensors along their first dimension; this one has none")
        self._agree(("allgather", [(array.dtype.str, array.shape[1:]) for array in arrays], name))
        if self.size() == 1:
            return list(arrays)
        of_ranks = self._comm.allgather(list(arrays))
        return [np.concatenate([of_rank[at] for of_rank in of_ranks]) for at in range(len(arrays))]

    def broadcast(self, arrays: Arrays, root_rank: int, name: Optional[str]) -> List[Any]:
        if not 0 <= root_rank < self.size():
            raise ValueError(f"root_rank={root_rank} is no rank; there are 0 to {self.size() - 1}")
        self._agree(("broadcast", [root_rank, [(array.dtype.str, array.shape) for array in arrays]], name))
        if self.size() == 1:
            return list(arrays)
        found = []
        for array in arrays:
            content = np.array(array, copy=True, order="C")
            self._comm.Bcast(
                content.reshape(-1).view(np.uint8) if content.size else content.reshape(-1), root=root_rank
            )
            found.append(content)
        return found

    def exchange(self, array: Any, splits: Optional[List[int]], name: Optional[str]) -> Tuple[Any, Any]:
        """Send a part of the rows to every rank; returns the rows received, and how many came from each rank."""
        size = self.size()
        if splits is None:
            if array.shape[0] % size:
                raise ValueError(f"alltoall without splits: {array.shape[0]} rows cannot be divided among {size} ranks")
            splits = [array.shape[0] // size] * size
        if len(splits) != size or sum(splits) != array.shape[0] or min(splits) < 0:
            raise ValueError(f"alltoall: splits {splits} do not divide {array.shape[0]} rows among {size} ranks")
        self._agree(("alltoall", [array.dtype.str, array.shape[1:]], name))
        parts = np.split(array, np.cumsum(splits)[:-1])
        received = self._comm.alltoall(parts) if size > 1 else parts
        return np.concatenate(received), np.array([len(part) for part in received], np.int32)

    def objects(self, own: Any) -> List[Any]:
        """The objects of all ranks."""
        self._agree(("allgather_object", None, None))
        return list(self._comm.allgather(own)) if self.size() > 1 else [own]

    def join(self) -> int:
        """Take part in the others' reductions, with zeros, until all have joined; returns the rank that joined last."""
        if self.size() == 1:
            return 0
        active = list(range(self.size()))
        while True:
            said = self._hear(None)
            if not any(said):
                return max(active)
            active = [rank for rank, what in enumerate(said) if what is not None]
            described = self._check(said)
            self._reduced([np.zeros(shape, np.dtype(dtype)) for dtype, shape in described[1]], described[0])

    def _agree(self, said: Said) -> None:
        if self.size() > 1:
            self._check(self._hear(said))

    def _hear(self, own: Optional[Said]) -> List[Optional[Said]]:
        """What all ranks are about to do; raises HorovodInternalError once a rank has ended, and from then on."""
        if self._others_are_there:
            said = self._comm.allgather(own)
            if _LEFT not in said:
                return list(said)
            self._others_are_there, self._gone = False, said.index(_LEFT)
        raise HorovodInternalError(
            f"rank {self._gone} has left (its script ended, or called hvd.shutdown()), and rank {self.rank()} goes on"
        )

    def _check(self, said: List[Optional[Said]]) -> Any:
        """The description of the next operation; raises the same error on all ranks where they do not agree on one."""
        calls = {rank: what for rank, what in enumerate(said) if what is not None}
        first, call = next(iter(calls.items()))
        other = next((rank for rank, what in calls.items() if what != call), None)
        if other is not None:
            raise HorovodInternalError(
                f"rank {first} calls {_shown(call)}, and rank {other} at the same point {_shown(calls[other])}: all "
                "ranks must call the same operations, of the same shapes and types, in the same order (real Horovod "
                "pairs them by name, horovod-compat by their order)"
            )
        kind, described, _ = call
        if len(calls) < len(said) and (kind != "allreduce" or described[0] not in (Average, Sum)):
            raise HorovodInternalError(
                f"rank {first} calls {_shown(call)} after rank {said.index(None)} has joined; only allreduce with "
                "op=hvd.Average or hvd.Sum may follow"
            )
        return described


def _shown(said: Any) -> str:
    kind, described, name = said
    if kind == "allreduce":
        described = [NAMES[described[0]], *described[1], *described[2:]]
    return f"{kind} {name or ''} {described}"


def _scaled(array: Any, factor: float) -> Any:
    return array if factor == 1.0 else (array * factor).astype(array.dtype)


def _known(flat: Any) -> Any:
    """The array in a type that MPI can add up."""
    return flat.astype(np.float32) if flat.dtype.itemsize == 2 and flat.dtype.kind in "fV" else flat


def _adasum(one: Any, other: Any) -> Any:
    a, b = one.astype(np.float64).reshape(-1), other.astype(np.float64).reshape(-1)
    dot, of_a, of_b = a @ b, a @ a, b @ b
    share_a = 1 - dot / (2 * of_a) if of_a > 0 else 1.0
    share_b = 1 - dot / (2 * of_b) if of_b > 0 else 1.0
    return (share_a * a + share_b * b).astype(one.dtype).reshape(one.shape)


GROUP = Group()
