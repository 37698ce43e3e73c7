"""A folder of plain files: every sample is a shard of its own, so all of them are mixed completely."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.shards.listing import Names, Part, listed
from muster.training.data.layouts.base import Layout, Sample


class FolderOfFiles(Layout):
    """Files of the same name are one sample; if all files are in folders, `cls` is the folder's number."""

    name = "files"

    def __init__(self, folder: Path) -> None:
        self._names: Names = listed(folder)
        self.classes = self._names.classes
        self.counts = np.ones(len(self._names), np.int8)  # type: ignore[assignment]

    def files(self, shard: int) -> tuple[str, ...]:
        return tuple(part.path for part in self._names.parts(shard))

    def open(self, shard: int, paths: Sequence[Path]) -> FileReader:
        return FileReader(self._names.key(shard), self._names.label(shard), self._names.parts(shard), paths)


class FileReader:
    def __init__(self, key: str, label: int | None, parts: Sequence[Part], paths: Sequence[Path]) -> None:
        self._key, self._label, self._parts, self._paths = key, label, parts, paths

    def read(self, number: int) -> Sample:
        sample: Sample = {"__key__": self._key}
        for part, path in zip(self._parts, self._paths, strict=True):
            sample[part.field] = path.read_bytes()
        if self._label is not None:
            sample.setdefault("cls", str(self._label).encode())
        return sample

    def will_need(self, numbers: Sequence[int]) -> None:
        """Opening a file to give a hint would cost as much as reading it."""

    def close(self) -> None:
        """Nothing to close."""
