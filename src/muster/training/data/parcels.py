"""Samples on their way from a worker process: all bytes of a batch in one piece of shared memory.

Otherwise they would go through a pipe, copied several times and 64 KiB at a time.
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


def packed_up(samples: Sequence[Sample]) -> Parcel:
    """In a worker."""
    parts = [[(name, len(value)) for name, value in sample.items() if isinstance(value, bytes)] for sample in samples]
    size = sum(length for names in parts for _, length in names)
    content = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(max(size, 1)))
    memory, at = memoryview(content.numpy()), 0
    for sample, names in zip(samples, parts, strict=True):
        for name, length in names:
            memory[at : at + length] = sample.pop(name)  # type: ignore[assignment]
            at += length
    return Parcel(list(samples), parts, content)


def unpacked(parcel: Parcel) -> list[Sample]:
    """In the training's process."""
    memory, at = memoryview(parcel.content.numpy()), 0
    for sample, names in zip(parcel.samples, parcel.parts, strict=True):
        for name, length in names:
            sample[name] = memory[at : at + length].tobytes()
            at += length
    return parcel.samples
