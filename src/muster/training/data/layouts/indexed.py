"""Samples that a function returns by number: from memory, from another library, or synthetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from muster.training.data.layouts.base import Layout, Sample


class IndexedSamples(Layout):
    """A single shard of `length` samples."""

    name = "indexed"

    def __init__(self, length: int, read: Callable[[int], Sample]) -> None:
        self.counts, self._read = [length], read

    def files(self, shard: int) -> tuple[str, ...]:
        return ()

    def open(self, shard: int, paths: Sequence[Path]) -> IndexedReader:
        return IndexedReader(self._read)


class IndexedReader:
    def __init__(self, read: Callable[[int], Sample]) -> None:
        self._read = read

    def read(self, number: int) -> Sample:
        return {"__key__": str(number), **self._read(number)}

    def will_need(self, numbers: Sequence[int]) -> None:
        """Nothing to read ahead."""

    def close(self) -> None:
        """Nothing to close."""
