"""Samples sent from a worker process: all bytes of a batch in one piece of shared memory.

Through a pipe they would be copied several times, 64 KiB at a time. Pieces are reused: getting fresh memory from the
system, page by page, takes longer than copying the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from muster.training.data.layouts.base import Sample


@dataclass(frozen=True)
class Parcel:
    """A packed batch."""

    samples: list[Sample]
    """The samples without the bytes that are in `content`."""
    parts: list[list[tuple[str, int]]]
    """For each sample the names and lengths of its parts in `content`, in order."""
    content: Tensor
    """The bytes of all parts; what follows them is left over from earlier batches."""


class Packer:
    """Packs the batches of one worker process."""

    def __init__(self, ahead: int) -> None:
        """`ahead`: how many batches a loader requests from a worker before it has taken the first."""
        # The loader requests a batch when it hands out an earlier one: the reader may still be using that one, and is
        # done with all before it.
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
    """Unpacks the workers' batches, in the training process."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def __call__(self, parcel: Parcel) -> list[Sample]:
        # Memory that is kept need not be mapped again.
        self._kept[parcel.content.data_ptr()] = parcel.content
        memory, at = memoryview(parcel.content.numpy()), 0
        for sample, names in zip(parcel.samples, parcel.parts, strict=True):
            for name, length in names:
                sample[name] = memory[at : at + length].tobytes()
                at += length
        return parcel.samples
