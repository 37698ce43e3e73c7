"""How the rest of an epoch is split among ranks and their workers, and what is left after some steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.training.ranges import Ranges, cut_parts, joined


@dataclass(frozen=True)
class Lane:
    """What one worker of one rank reads: a stretch of the remaining samples, in batches."""

    begin: int
    count: int = 0
    """The number of batches."""
    batch_size: int = 0
    last: int = 0
    """The samples of the last batch."""

    @property
    def end(self) -> int:
        return self.begin + self.samples(self.count)

    def samples(self, batches: int) -> int:
        """The samples of the first few batches, or of all."""
        if batches < self.count:
            return max(batches, 0) * self.batch_size
        return (self.count - 1) * self.batch_size + self.last if self.count else 0

    def sizes(self) -> Iterator[int]:
        for number in range(self.count):
            yield self.last if number == self.count - 1 else self.batch_size


@dataclass(frozen=True)
class Split:
    """Splits samples over ranks: the same number of steps for each, and each sample once.

    Each rank has a stretch of its own, and each of its workers a stretch of that. All batches are full except the last
    of each rank: the samples that fill no step are spread over all ranks' last batches, which may then be one sample
    larger than the others. With `drop_last` these samples are left out instead.
    """

    left: int
    ranks: int
    batch_size: int
    drop_last: bool = False

    @property
    def steps(self) -> int:
        whole, rest = divmod(self.left, self.ranks * self.batch_size)
        if self.drop_last:
            return whole
        # If the rest is less than one sample for each rank, it goes into the batches before.
        return whole + (rest >= self.ranks)

    @property
    def left_out(self) -> int:
        """Samples that no rank gets: with `drop_last`, or if there are fewer samples than ranks."""
        if self.drop_last or self.steps == 0:
            return self.left - self.steps * self.ranks * self.batch_size
        return 0

    def lane(self, rank: int, worker: int = 0, workers: int = 1) -> Lane:
        """Worker W of N has the batches W, W + N, W + 2N …, since loaders take batches from workers in turn."""
        begin = self._begin(rank)
        for before in range(worker):
            begin += self._lane(rank, before, workers, 0).end
        return self._lane(rank, worker, workers, begin)

    def after(self, remaining: Ranges, step: int, workers: int = 1) -> Ranges:
        """What is left of `remaining`, the ranges that are split here, once every rank has taken `step` batches."""
        kept = []
        for rank in range(self.ranks):
            begin = self._begin(rank)
            for worker in range(workers):
                lane = self._lane(rank, worker, workers, begin)
                kept.append((begin + lane.samples(_ceil(step - worker, workers)), lane.end))
                begin = lane.end
        kept.append((self.left - self.left_out, self.left))
        return joined(cut_parts(remaining, joined(kept)))

    def _begin(self, rank: int) -> int:
        share, extra = divmod(self.left - self.left_out, self.ranks)
        return rank * share + min(rank, extra)

    def _lane(self, rank: int, worker: int, workers: int, begin: int) -> Lane:
        count, last = max(0, _ceil(self.steps - worker, workers)), self.batch_size
        if count and worker == (self.steps - 1) % workers:
            last = self._begin(rank + 1) - self._begin(rank) - (self.steps - 1) * self.batch_size
        return Lane(begin, count, self.batch_size, last)


def _ceil(count: int, by: int) -> int:
    return -(-count // by)
