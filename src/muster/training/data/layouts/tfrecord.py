"""TFRecord files: every record is a sample with the part `record`, as bytes, for `tf.io.parse_example` or the like.

The checksums in the files are not checked: they are CRC32C, which Python's library lacks.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

from muster.training.data.layouts.base import Layout, OpenFile, Sample, runs

_HEAD = struct.Struct("<QI")
_TAIL = 4


class TFRecords(Layout):
    name = "tfrecord"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._names = list(names)
        self._places = [_scan(folder / name) for name in names]
        self.counts = [len(offsets) - 1 for offsets in self._places]

    def files(self, shard: int) -> tuple[str, ...]:
        return (self._names[shard],)

    def open(self, shard: int, paths: Sequence[Path]) -> TFRecordReader:
        return TFRecordReader(paths[0], self._places[shard])


class TFRecordReader:
    def __init__(self, path: Path, offsets: array[int]) -> None:
        self._file, self._offsets = OpenFile(path), offsets

    def read(self, number: int) -> Sample:
        begin, end = self._offsets[number] + _HEAD.size, self._offsets[number + 1] - _TAIL
        return {"__key__": f"{self._file.path.name}/{number}", "record": self._file.read(begin, end - begin)}

    def will_need(self, numbers: Sequence[int]) -> None:
        self._file.will_need((self._offsets[first], self._offsets[last + 1]) for first, last in runs(numbers))

    def close(self) -> None:
        self._file.close()


def _scan(path: Path) -> array[int]:
    """Where each record begins, and where the last one ends."""
    offsets = array("q", [0])
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(2) == b"\x1f\x8b":
            raise ValueError(f"{path} is compressed, so its records cannot be read one by one: unpack it first")
        while (at := offsets[-1]) < size:
            head = os.pread(file.fileno(), _HEAD.size, at)
            end = at + _HEAD.size + _HEAD.unpack(head)[0] + _TAIL if len(head) == _HEAD.size else size + 1
            if end > size:
                raise ValueError(f"{path} is cut off, or no TFRecord file: no whole record begins at byte {at}")
            offsets.append(end)
    return offsets
