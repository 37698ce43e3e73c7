"""A stream through PyTorch's DataLoader."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from muster.training.data.layouts.base import Sample
from muster.training.data.parcels import Packer, Unpacker
from muster.training.data.stream import Plan, Stream, as_it_is
from muster.training.world import rest


class TorchBatches(IterableDataset[Any]):
    """The batches of one plan; each worker of a loader yields its own, and the loader takes them in turn."""

    def __init__(self, plan: Plan, decode: Callable[[Sample], Any], collate: Callable[[Sequence[Any]], Any]) -> None:
        self._plan, self._decode, self._collate = plan, decode, collate

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None:
            # Collecting garbage would touch, and so copy, the pages that a forked worker shares with the training.
            gc.freeze()
        for batch in self._plan.batches(info.id if info is not None else 0, self._decode):
            yield self._collate(batch)


class TorchLoader:
    """One loop over it is an epoch of its stream, or the rest of one.

    `decode` and `collate` run in the workers. Without both, a batch is a list of samples.
    """

    def __init__(
        self,
        stream: Stream,
        decode: Callable[[Sample], Any] | None = None,
        *,
        workers: int = 0,
        collate: Callable[[Sequence[Any]], Any] | None = None,
        pin_memory: bool = False,
        prefetch_factor: int = 2,
    ) -> None:
        self.stream = stream
        self._decode, self._workers = decode or as_it_is, workers
        self._plain = decode is None and collate is None
        self._collate = collate or (
            default_collate if decode is not None else Packer(prefetch_factor) if workers else list
        )
        self._pin_memory, self._prefetch_factor = pin_memory, prefetch_factor

    def __len__(self) -> int:
        return len(self.stream)

    def __iter__(self) -> Iterator[Any]:
        plan = self.stream.plan(max(1, self._workers))
        # Workers are forked: see World.rest.
        rest()
        loader = DataLoader(
            TorchBatches(plan, self._decode, self._collate),
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._pin_memory,
            prefetch_factor=self._prefetch_factor if self._workers else None,
            # A separate generator: the training's random numbers must not depend on how often a loader was started.
            generator=torch.Generator(),
        )
        parcels = self._plain and self._workers > 0
        yield from self.stream.counted(map(Unpacker(), loader) if parcels else loader)
