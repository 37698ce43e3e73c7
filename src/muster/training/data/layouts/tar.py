"""Tar shards (WebDataset's layout), with the index of `muster data pack` or without."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.shards import tar
from muster.shards.index import PLACES, ShardIndex, places_of
from muster.training.data.layouts.base import Layout, OpenFile, Sample, runs

_SCANS_AT_ONCE = 8


class TarShards(Layout):
    """Files of the same name are one sample: `000001.jpg` and `000001.cls` are its parts `jpg` and `cls`."""

    name = "tar"

    def __init__(self, names: Sequence[str], counts: Sequence[int], index: ShardIndex | None = None) -> None:
        self._names, self.counts = list(names), list(counts)
        self._known = {shard.name: (shard.size, shard.sha256) for shard in index.shards} if index else {}
        self._has_places = index is not None
        self.classes = index.classes if index else ()

    def files(self, shard: int) -> tuple[str, ...]:
        name = self._names[shard]
        return (name, name + PLACES) if self._has_places else (name,)

    def open(self, shard: int, paths: Sequence[Path]) -> TarReader:
        places = places_of(paths[0], paths[1] if len(paths) > 1 else None)
        if len(places.keys) != self.counts[shard]:
            raise ValueError(
                f"{paths[0]} holds {len(places.keys)} samples, and {self.counts[shard]} when the data was opened: "
                "shards must not change meanwhile"
            )
        return TarReader(paths[0], places)

    def sha256(self, name: str) -> tuple[int, str] | None:
        return self._known.get(name)


def indexed(index: ShardIndex) -> TarShards:
    return TarShards([shard.name for shard in index.shards], [shard.samples for shard in index.shards], index)


def scanned(folder: Path, names: Sequence[str]) -> TarShards:
    """Shards without an index: each is scanned once, from header to header."""
    with ThreadPoolExecutor(_SCANS_AT_ONCE) as workers:
        counts = list(workers.map(lambda name: len(tar.scan(folder / name).keys), names))
    return TarShards(names, counts)


class TarReader:
    def __init__(self, path: Path, places: tar.Places) -> None:
        self._file, self._keys = OpenFile(path), places.keys
        self._fields = list(places.fields.items())

    def read(self, number: int) -> Sample:
        sample: Sample = {"__key__": self._keys[number]}
        for field, places in self._fields:
            offset, size = places[number]
            if offset >= 0:
                sample[field] = self._file.read(offset, size)
        return sample

    def will_need(self, numbers: Sequence[int]) -> None:
        self._file.will_need(self._stretch(*run) for run in runs(numbers))

    def _stretch(self, first: int, last: int) -> tuple[int, int]:
        begin = min(places[first][0] for _, places in self._fields if places[first][0] >= 0)
        return begin, max(sum(places[last]) for _, places in self._fields)

    def close(self) -> None:
        self._file.close()
