"""The order of an epoch's samples: a pure function of the shards, the seed and the epoch.

Shards are taken in a random order, each cut into short runs of neighbours. A run is moved to a random place among those
of the `shards` that follow, and then all samples of a pool of runs are mixed. So every read is a run long, no more
than about `shards` shards are in use at any point of the order, and the whole order is never in memory: only runs are
kept, and the order of samples is computed a pool at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_SHARDS, _OFFSET, _RUNS, _POOL = range(4)
"""The purposes of random numbers: each draw has its own seed."""


@dataclass(frozen=True)
class Shuffle:
    """How well an epoch is mixed, and what it costs.

    `shards` are mixed with each other, in runs of `run` samples that are read at once; the samples of a `pool` are
    mixed completely. To start reading, a worker needs up to `shards` shards.
    """

    seed: int = 0
    shards: int = 16
    run: int = 16
    pool: int = 4096

    def __post_init__(self) -> None:
        for name in ("shards", "run", "pool"):
            if getattr(self, name) < 1:
                raise ValueError(f"Shuffle({name}={getattr(self, name)}) must be 1 or more")


class Pool(NamedTuple):
    """Samples that are read at about the same time, in the order in which they are handed out."""

    shards: Numbers
    samples: Numbers
    """Each one's number within its shard."""


class EpochOrder:
    """The order of one epoch, the same for every rank and every number of ranks."""

    def __init__(self, counts: Sequence[int], shuffle: Shuffle | None, epoch: int, whole_shards: bool = False) -> None:
        """`counts` has the samples of each shard. With `whole_shards` each run is a whole shard."""
        self._shuffle, self._epoch = shuffle, epoch
        sizes = np.asarray(counts, dtype=np.int64)
        if shuffle is None:
            self._shard = np.flatnonzero(sizes).astype(np.int64)
            self._first, self._length = np.zeros(len(self._shard), np.int64), sizes[self._shard]
        else:
            self._cut_runs(sizes, shuffle, whole_shards)
        self._begin = np.cumsum(self._length) - self._length
        self.length = int(self._length.sum())
        most = shuffle.pool if shuffle is not None else Shuffle().pool
        self._pools = np.flatnonzero(np.diff(self._begin // most, prepend=-1))
        """The first run of each pool."""

    def _cut_runs(self, sizes: Numbers, shuffle: Shuffle, whole_shards: bool) -> None:
        shards = self._drawn(len(sizes), _SHARDS).argsort(kind="stable")
        shards = shards[sizes[shards] > 0]
        sizes = sizes[shards]
        # Runs are cut at other points in each epoch, so that no two samples always stay together.
        offset = int(self._drawn(1, _OFFSET)[0] % shuffle.run)
        runs = np.ones_like(sizes) if whole_shards else -(-(sizes + offset) // shuffle.run)
        which = np.repeat(np.arange(len(shards)), runs)
        number = np.arange(len(which)) - np.repeat(np.cumsum(runs) - runs, runs)
        first = np.maximum(number * shuffle.run - offset, 0)
        last = sizes[which] if whole_shards else np.minimum((number + 1) * shuffle.run - offset, sizes[which])
        moved = which + self._drawn(len(which), _RUNS) / 2.0**64 * shuffle.shards
        order = moved.argsort(kind="stable")
        order = order[(last - first)[order] > 0]
        self._shard, self._first = shards[which[order]], first[order]
        self._length = (last - first)[order]

    def pools(self, begin: int, end: int) -> Iterator[Pool]:
        """The samples from position `begin` of the epoch to before `end`, a pool at a time."""
        if begin >= end:
            return
        starts = self._begin[self._pools]
        number = int(np.searchsorted(starts, begin, side="right")) - 1
        while number < len(starts) and starts[number] < end:
            shards, samples = self._mixed(number)
            low, high = max(begin - int(starts[number]), 0), end - int(starts[number])
            yield Pool(shards[low:high], samples[low:high])
            number += 1

    def _mixed(self, number: int) -> Pool:
        runs = slice(self._pools[number], self._pools[number + 1] if number + 1 < len(self._pools) else None)
        lengths = self._length[runs]
        shards = np.repeat(self._shard[runs], lengths)
        samples = np.arange(len(shards)) + np.repeat(self._first[runs] - (np.cumsum(lengths) - lengths), lengths)
        if self._shuffle is None:
            return Pool(shards, samples)
        order = self._drawn(len(shards), _POOL, number).argsort(kind="stable")
        return Pool(shards[order], samples[order])

    def _drawn(self, count: int, purpose: int, number: int = 0) -> NDArray[np.uint64]:
        """Random 64-bit numbers; NumPy guarantees that these stay the same in all its versions."""
        assert self._shuffle is not None
        seeds = np.random.SeedSequence([self._shuffle.seed % 2**64, self._epoch, purpose, number])
        return np.random.PCG64(seeds).random_raw(count)


def order_name(counts: Sequence[int], shuffle: Shuffle | None, whole_shards: bool) -> str:
    """A name for everything that decides the order besides the epoch: positions are valid only where it is the same."""
    sizes = zlib.crc32(np.asarray(counts, dtype="<i8").tobytes())
    how = "in order" if shuffle is None else f"{shuffle.seed}/{shuffle.shards}/{shuffle.run}/{shuffle.pool}"
    return f"{len(counts)} shards {sizes:08x}, {how}{', whole' if whole_shards else ''}"
