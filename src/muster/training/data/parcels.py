"""Samples on their way from a worker process: all bytes of a batch in one piece of shared memory.

Otherwise they would go through a pipe, copied several times and 64 KiB at a time. Pieces are used again: to get fresh
memory from the system, page by page, takes longer than to copy what goes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from muster.training.data.layouts.base import Sample


@dataclass(frozen=True)
class Parcel:
    """A batch, packed up."""

    samples: list[Sample]
    """Without what is in `content`."""
    parts: list[list[tuple[str, int]]]
    """Of each sample: the names and lengths of its parts there, in their order."""
    content: Tensor
    """The rest of it is left from others."""


class Packer:
    """Packs up the batches of one worker; which has its own, since workers are processes."""

    def __init__(self, ahead: int) -> None:
        """`ahead`: as many batches a loader asks a worker for before it has taken the first."""
        # A worker is asked for a batch when the loader hands out an earlier one. Whoever reads it may still be at that
        # one, and has done with all before it.
        self._slots: list[Tensor | None] = [None] * (ahead + 2)
        self._next = 0

    def __call__(self, samples: Sequence[Sample]) -> Parcel:
        parts = [
            [(name, len(value)) for name, value in sample.items() if isinstance(value, bytes)] for sample in samples
        ]
        slot, self._next = self._next, (self._next + 1) % len(self._slots)
        content = self._room(slot, sum(length for names in parts for _, length in names))
        memory, at = memoryview(content.numpy()), 0
        for sample, names in zip(samples, parts, strict=True):
            for name, length in names:
                memory[at : at + length] = sample.pop(name)  # type: ignore[assignment]
                at += length
        return Parcel(list(samples), parts, content)

    def _room(self, slot: int, size: int) -> Tensor:
        content = self._slots[slot]
        if content is None or content.numel() < size:
            room = max(1, size + size // 4)
            content = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(room))
            self._slots[slot] = content
        return content


class Unpacker:
    """Unpacks what workers packed up, in the training's process."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def __call__(self, parcel: Parcel) -> list[Sample]:
        # What is kept need not be mapped again.
        self._kept[parcel.content.data_ptr()] = parcel.content
        memory, at = memoryview(parcel.content.numpy()), 0
        for sample, names in zip(parcel.samples, parcel.parts, strict=True):
            for name, length in names:
                sample[name] = memory[at : at + length].tobytes()
                at += length
        return parcel.samples
