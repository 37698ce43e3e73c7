"""Which samples a rank takes at each step: the same after a resume, also with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import SupportsIndex, TypedDict, TypeVar

import torch
from torch import Tensor

from muster.training.ranges import Ranges, cut

Batch = TypeVar("Batch")


class SamplerState(TypedDict):
    """The position of a sampler, as plain values for a checkpoint."""

    epoch: int
    length: int
    remaining: Ranges


class ResumableSampler:
    """Batches of indices for one rank, from any position in an epoch on: the `batch_sampler` of a `DataLoader`.

    Every rank computes the same order of all samples. Interleaved, each step takes the next `batch_size * world_size`
    of them, so the number of ranks does not change what a step sees. With `contiguous=True` each rank goes through a
    stretch of its own, which suits reading packed shards one after the other. Samples that do not fill a step are left
    out, different ones in every epoch.

    A loader reads ahead, so it has asked for more than was trained on. Take its batches through `counted(loader)`: then
    `state()` is the position after the current batch, and `restore` continues there, whatever the world size was.
    With `with_epoch=True` batches hold `(epoch, index)`, for a dataset that seeds its augmentation with both.
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
        with_epoch: bool = False,
    ) -> None:
        _check_whole(length=length, batch_size=batch_size, rank=rank, world_size=world_size)
        if batch_size < 1 or not 0 <= rank < world_size:
            raise ValueError(
                f"batch_size={batch_size}, rank={rank}, world_size={world_size}: a batch has at least one sample, and "
                "ranks count from 0 to below world_size. Give what `join()` found: rank=world.rank, "
                "world_size=world.size"
            )
        if length < batch_size * world_size:
            raise ValueError(f"{length} samples do not fill one step of {world_size} x {batch_size}")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.world_size, self.contiguous = rank, world_size, contiguous
        self._order, self._with_epoch = order or self._shuffled, with_epoch
        self._begin_at(0, [(0, length)])

    def _begin_at(self, epoch: int, remaining: Ranges) -> None:
        self.epoch, self._remaining = epoch, remaining
        self._drawn: int | None = None
        """Batches that were requested from this object since then; None before the first iteration."""
        self._counted: int | None = None
        """Batches that the training took through `counted` since then; None if it does not use `counted`."""

    @property
    def full_epoch_steps(self) -> int:
        """The steps of an epoch without a change of the world size."""
        return self.length // (self.batch_size * self.world_size)

    def __len__(self) -> int:
        """The remaining steps of this epoch."""
        return self._left() // (self.batch_size * self.world_size)

    def __iter__(self) -> Iterator[list[int] | list[tuple[int, int]]]:
        order, epoch = self._order(self.epoch), self.epoch
        positions = _concatenated(self._remaining)
        self._drawn = 0
        for step in range(len(self)):
            begin = self._begin(step)
            taken = order[positions[begin : begin + self.batch_size]].tolist()
            self._drawn = step + 1
            yield [(epoch, index) for index in taken] if self._with_epoch else taken

    def counted(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The loader's batches, counted as the training takes them: then `state()` needs no number."""
        self._counted = 0
        for batch in loader:
            self._counted += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch from its start; one that `restore` has just entered is continued."""
        _check_whole(epoch=epoch)
        if epoch != self.epoch or self._drawn is not None or self._counted is not None:
            self._begin_at(epoch, [(0, self.length)])

    def set_batch_size(self, batch_size: int) -> None:
        """Use another batch size per rank after the current batch; start a new iteration of the loader then."""
        _check_whole(batch_size=batch_size)
        if batch_size < 1 or self.length < batch_size * self.world_size:
            raise ValueError(
                f"batch_size={batch_size}: {self.length} samples must fill one step of {self.world_size} ranks, and it "
                "must be at least 1"
            )
        state = self.state()
        self.batch_size = batch_size
        self.restore(state)

    def state(self, step: int | None = None) -> SamplerState:
        """The position of all ranks after `step` batches since `set_epoch` or `restore`; the same on every rank.

        Without `step`, the batches taken through `counted` are used.
        """
        step = self._checked(step)
        left, world_size = self._left(), self.world_size
        if self.contiguous:
            share = left // world_size
            kept = [(rank * share + step * self.batch_size, (rank + 1) * share) for rank in range(world_size)]
            kept.append((world_size * share, left))
        else:
            kept = [(step * self.batch_size * world_size, left)]
        remaining = [part for begin, end in kept for part in cut(self._remaining, begin, end)]
        return {"epoch": self.epoch, "length": self.length, "remaining": remaining}

    def progress(self, step: int | None = None) -> float:
        """The progress of the training in epochs, after `step` batches since `set_epoch` or `restore`."""
        step = self._checked(step)
        return self.epoch + 1 - (self._left() - step * self.batch_size * self.world_size) / self.length

    def restore(self, state: SamplerState) -> None:
        """Continue from a saved position; the remaining samples are split again."""
        if not isinstance(state, Mapping) or not SamplerState.__required_keys__ <= state.keys():
            raise TypeError(
                f"{state!r} is no position: give what `state()` returned, from the progress of a checkpoint"
            )
        if state["length"] != self.length:
            raise ValueError(f"the checkpoint was made with {state['length']} samples, the data has {self.length} now")
        self._begin_at(state["epoch"], [(int(begin), int(end)) for begin, end in state["remaining"]])
        if len(self) == 0:
            self.set_epoch(self.epoch + 1)

    def _checked(self, step: int | None) -> int:
        """The batches since `set_epoch` or `restore`; ValueError for an impossible number."""
        if step is None and self._counted is None and self._drawn is not None:
            raise ValueError("which batch is trained on is not known: go through `sampler.counted(loader)`")
        counted = self._counted or 0
        if step is None:
            return counted
        most = len(self) if self._drawn is None else self._drawn
        if 0 <= step <= most and (self._counted is None or step == counted):
            return step
        known = f"0 to {most}" if self._counted is None else str(counted)
        raise ValueError(
            f"step={step} is not the number of batches since set_epoch or restore ({known}). It is not the step of the "
            "whole training: leave it out, and take the batches through `sampler.counted(loader)`"
        )

    def _begin(self, step: int) -> int:
        if self.contiguous:
            return self.rank * (self._left() // self.world_size) + step * self.batch_size
        return (step * self.world_size + self.rank) * self.batch_size

    def _left(self) -> int:
        return sum(end - begin for begin, end in self._remaining)

    def _shuffled(self, epoch: int) -> Tensor:
        return torch.randperm(self.length, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))


def _check_whole(**numbers: object) -> None:
    for name, value in numbers.items():
        if not isinstance(value, SupportsIndex):
            means = "len(dataset)" if name == "length" else "a whole number"
            raise TypeError(f"{name} is {type(value).__name__}; give {means}")


def _concatenated(ranges: Ranges) -> Tensor:
    return torch.cat([torch.arange(begin, end) for begin, end in ranges] or [torch.empty(0, dtype=torch.long)])
