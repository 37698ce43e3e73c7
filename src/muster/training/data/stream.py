"""A data set as a stream of batches for one rank, whose position can be saved and restored."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar

from muster.training.data.layouts.base import Sample
from muster.training.data.order import EpochOrder, Pool, Shuffle, order_name
from muster.training.data.source import LayoutName, ShardReaders, Source, open_source
from muster.training.data.split import Split
from muster.training.ranges import Ranges, cut, total

Batch = TypeVar("Batch")
Decoded = TypeVar("Decoded")
MIXED = Shuffle()
SEED = "__seed__"
"""A sample's own seed in this epoch, for augmentation; it does not depend on the worker or rank that reads it."""


class StreamState(TypedDict):
    """The position of all ranks, as plain values for a checkpoint."""

    epoch: int
    remaining: Ranges
    order: str


@dataclass(frozen=True)
class Plan:
    """What one rank reads from here to the end of the epoch; it is sent to worker processes."""

    source: Source
    shuffle: Shuffle | None
    epoch: int
    remaining: Ranges
    split: Split
    rank: int
    workers: int

    def batches(self, worker: int, decode: Callable[[Sample], Decoded]) -> Iterator[list[Decoded]]:
        """One worker's batches, in order."""
        lane = self.split.lane(self.rank, worker, self.workers)
        layout = self.source.layout
        order = EpochOrder(layout.counts, self.shuffle, self.epoch, layout.whole_shards)
        stretches = cut(self.remaining, lane.begin, lane.end)
        samples = self._samples(pool for stretch in stretches for pool in order.pools(*stretch))
        for size in lane.sizes():
            yield [decode(sample) for _, sample in zip(range(size), samples, strict=False)]

    def _samples(self, pools: Iterator[Pool]) -> Iterator[Sample]:
        readers = ShardReaders(self.source)
        try:
            current = next(pools, None)
            if current is not None:
                readers.prepare(current)
            while current is not None:
                following = next(pools, None)
                readers.keep(current, *([following] if following is not None else []))
                if following is not None:
                    readers.prepare(following)
                places = zip(current.shards.tolist(), current.samples.tolist(), strict=True)
                for place, sample in zip(places, readers.samples(current), strict=True):
                    sample[SEED] = self._seed(*place)
                    yield sample
                current = following
        finally:
            readers.close()

    def _seed(self, shard: int, number: int) -> int:
        seed = self.shuffle.seed if self.shuffle is not None else 0
        return zlib.crc32(b"%d/%d/%d/%d" % (seed, self.epoch, shard, number))


class Stream:
    """Batches of one rank, epoch after epoch, from any position on.

    Each rank, and each of its workers, reads a stretch of the epoch's order. All ranks have the same number of steps,
    and every sample comes once in an epoch: those that fill no step are spread over the last batches. Iterate over it
    with `TorchLoader`, `numpy_batches` or `tf_dataset`; one loop is one epoch, or the rest of it. `state()` is the
    position after the current batch, the same on every rank; `restore` continues there with any number of ranks and
    workers.
    """

    def __init__(
        self,
        source: str | Path | Source,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        shuffle: Shuffle | None = MIXED,
        drop_last: bool = False,
        layout: LayoutName | None = None,
    ) -> None:
        """`source` is a folder, an address or the result of `open_source`; without `shuffle` its own order is kept."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank} must be 0 to {world_size - 1}: world_size is {world_size}")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be 1 or more")
        self.source = source if isinstance(source, Source) else open_source(source, layout)
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.shuffle, self.drop_last = shuffle, drop_last
        self._order = order_name(self.source.layout.counts, shuffle, self.source.layout.whole_shards)
        self._begin_at(0, [(0, len(self.source))])
        if len(self) == 0:
            raise ValueError(f"{len(self.source)} samples do not fill one step of {world_size} x {batch_size}")

    def _begin_at(self, epoch: int, remaining: Ranges) -> None:
        self.epoch, self._remaining = epoch, remaining
        self._taken, self._workers = 0, 1

    def __len__(self) -> int:
        """The remaining steps of this epoch."""
        return self._split().steps - self._taken

    @property
    def samples(self) -> int:
        """The samples of an epoch."""
        return len(self.source)

    def state(self) -> StreamState:
        """The position of all ranks after the current batch."""
        remaining = self._split().after(self._remaining, self._taken, self._workers)
        return {"epoch": self.epoch, "remaining": remaining, "order": self._order}

    def restore(self, state: StreamState) -> None:
        """Continue from a saved position; the rest of the epoch is split again."""
        if state["order"] != self._order:
            raise ValueError(
                f"the checkpoint's position is in another order ({state['order']}) than this data has with this "
                f"shuffle ({self._order}): give the same data, seed and Shuffle, or begin at an epoch with set_epoch"
            )
        self._begin_at(int(state["epoch"]), [(int(begin), int(end)) for begin, end in state["remaining"]])
        if len(self) == 0:
            self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch from its start."""
        self._begin_at(epoch, [(0, len(self.source))])

    def plan(self, workers: int = 1) -> Plan:
        """What this rank reads from here on with this many workers; take its batches through `counted`."""
        state = self.state()
        self._begin_at(self.epoch, state["remaining"])
        self._workers = workers
        return Plan(self.source, self.shuffle, self.epoch, self._remaining, self._split(), self.rank, workers)

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a loader that reads this stream's plan, counted as the training takes them."""
        for batch in batches:
            self._taken += 1
            yield batch
        self.set_epoch(self.epoch + 1)

    def _split(self) -> Split:
        return Split(total(self._remaining), self.world_size, self.batch_size, self.drop_last)


def as_it_is(sample: Sample) -> Sample:
    """A decoder that changes nothing."""
    return sample
