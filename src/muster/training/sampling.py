"""Which samples a rank takes at which step: the same after a resume, also with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypedDict

import torch
from torch import Tensor

Ranges = list[tuple[int, int]]


class SamplerState(TypedDict):
    """Where a sampler is: plain values, for a checkpoint."""

    epoch: int
    length: int
    remaining: Ranges


class ResumableSampler:
    """Batches of `(epoch, index)` for one rank, from any position in an epoch on.

    Every rank works out the same order of all samples. Interleaved, each step takes the next `batch_size * world_size`
    of them, so the number of ranks does not change what a step sees. With `contiguous=True` each rank walks
    through a stretch of its own, as reading packed shards one after the other wants it. What does not fill a step
    is left out, and every epoch leaves out something else.

    The position is given, not counted: a loader that reads ahead has asked for more than was trained on.
    `state(step)` is that position after `step` batches of this epoch; `restore` takes it, whatever the world size was.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        contiguous: bool = False,
        order: Callable[[int], Tensor] | None = None,
    ) -> None:
        if length < batch_size * world_size:
            raise ValueError(f"{length} samples do not fill one step of {world_size} x {batch_size}")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.world_size, self.contiguous = rank, world_size, contiguous
        self._order = order or self._shuffled
        self.epoch = 0
        self._remaining: Ranges = [(0, length)]

    @property
    def full_epoch_steps(self) -> int:
        """Steps of an epoch that was not interrupted by a change of the world size."""
        return self.length // (self.batch_size * self.world_size)

    def __len__(self) -> int:
        """Steps that are left of this epoch."""
        return self._left() // (self.batch_size * self.world_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order, epoch = self._order(self.epoch), self.epoch
        positions = _concatenated(self._remaining)
        for step in range(len(self)):
            begin = self._begin(step)
            taken = order[positions[begin : begin + self.batch_size]]
            yield [(epoch, index) for index in taken.tolist()]

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch from its start."""
        self.epoch, self._remaining = epoch, [(0, self.length)]

    def state(self, step: int) -> SamplerState:
        """Where all ranks are after `step` batches since the start or `restore`; the same on every rank."""
        left, world_size = self._left(), self.world_size
        if self.contiguous:
            share = left // world_size
            kept = [(rank * share + step * self.batch_size, (rank + 1) * share) for rank in range(world_size)]
            kept.append((world_size * share, left))
        else:
            kept = [(step * self.batch_size * world_size, left)]
        remaining = [part for begin, end in kept for part in _cut(self._remaining, begin, end)]
        return {"epoch": self.epoch, "length": self.length, "remaining": remaining}

    def progress(self, step: int) -> float:
        """How far the training is after `step` batches since the start or `restore`, in epochs."""
        return self.epoch + 1 - (self._left() - step * self.batch_size * self.world_size) / self.length

    def restore(self, state: SamplerState) -> None:
        """Go on from there; the samples that are left are shared out anew."""
        if state["length"] != self.length:
            raise ValueError(f"the checkpoint was made with {state['length']} samples, the data has {self.length} now")
        self.epoch = state["epoch"]
        self._remaining = [(int(begin), int(end)) for begin, end in state["remaining"]]
        if len(self) == 0:
            self.set_epoch(self.epoch + 1)

    def _begin(self, step: int) -> int:
        if self.contiguous:
            return self.rank * (self._left() // self.world_size) + step * self.batch_size
        return (step * self.world_size + self.rank) * self.batch_size

    def _left(self) -> int:
        return sum(end - begin for begin, end in self._remaining)

    def _shuffled(self, epoch: int) -> Tensor:
        return torch.randperm(self.length, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))


def _concatenated(ranges: Ranges) -> Tensor:
    return torch.cat([torch.arange(begin, end) for begin, end in ranges] or [torch.empty(0, dtype=torch.long)])


def _cut(ranges: Ranges, begin: int, end: int) -> Ranges:
    """What lies from the `begin`th to before the `end`th of all the numbers in the ranges."""
    found, passed = [], 0
    for first, last in ranges:
        low, high = max(begin - passed, 0), min(end - passed, last - first)
        if low < high:
            found.append((first + low, first + high))
        passed += last - first
    return found
