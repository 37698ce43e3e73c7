"""The rank of this process among the others: the calls that Horovod has for every framework."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import List, Optional, Tuple

from muster.runtime.ranks import RankInfo


@dataclass(frozen=True)
class Place:
    """The number of this rank among all ranks, on its node, and among those with the same local rank on other nodes."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


def place(info: RankInfo, locals_of_ranks: List[Tuple[int, int]]) -> Place:
    """The place of this rank, from its launcher's variables and every rank's local rank and local size."""
    same = [rank for rank, (local_rank, _) in enumerate(locals_of_ranks) if local_rank == info.local_rank]
    return Place(
        info.rank,
        info.size,
        info.local_rank,
        info.local_size,
        same.index(info.rank),
        len(same),
        len({local_size for _, local_size in locals_of_ranks}) == 1,
    )


def warn_of_settings() -> None:
    """Warn of settings that have an effect in Horovod and none here."""
    if os.environ.get("HOROVOD_TIMELINE"):
        warnings.warn("HOROVOD_TIMELINE is set: horovod-compat writes no timeline", stacklevel=3)


class Membership:
    """Whether hvd.init() was called, and what it found."""

    def __init__(self) -> None:
        self.found: Optional[Place] = None

    @property
    def place(self) -> Place:
        if self.found is None:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return self.found

    def is_initialized(self) -> bool:
        return self.found is not None

    def rank(self) -> int:
        return self.place.rank

    def size(self) -> int:
        return self.place.size

    def local_rank(self) -> int:
        return self.place.local_rank

    def local_size(self) -> int:
        return self.place.local_size

    def cross_rank(self) -> int:
        return self.place.cross_rank

    def cross_size(self) -> int:
        return self.place.cross_size

    def is_homogeneous(self) -> bool:
        return self.place.is_homogeneous
