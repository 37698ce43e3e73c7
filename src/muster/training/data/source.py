"""A data set: its layout and its files, with readers of the shards in use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from muster.errors import JobError
from muster.shards.index import INDEX, index_from
from muster.training.data.arriving import ArrivingFiles
from muster.training.data.files import Files, Local, LocalFiles, RemoteFiles
from muster.training.data.layouts import binary, tar
from muster.training.data.layouts.base import Layout, Reader, Sample
from muster.training.data.layouts.folder import FolderOfFiles
from muster.training.data.layouts.indexed import IndexedSamples
from muster.training.data.layouts.parquet import ParquetRows
from muster.training.data.layouts.tfrecord import TFRecords
from muster.training.data.order import Pool
from muster.wire.data.arriving import LIST

LayoutName = Literal["tar", "files", "tfrecord", "parquet", "mds", "litdata"]
_BINARY_INDEX = "index.json"
_FETCHES_AT_ONCE = 4


@dataclass(frozen=True)
class Source:
    """A data set to read from, in worker processes too."""

    layout: Layout
    files: Files

    def __len__(self) -> int:
        return int(np.sum(self.layout.counts, dtype=np.int64))

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each label, if labels come from folders."""
        return getattr(self.layout, "classes", ())


def open_source(address: str | Path, layout: LayoutName | None = None) -> Source:
    """Open a folder or an address, and find out how many samples each of its shards has."""
    text = str(address)
    files = _files_at(text)
    names = files.names()
    kind = layout or _recognised(names, files)
    source = Source(_OPENERS[kind](files, names), files)
    if len(source) == 0:
        raise JobError(f"{files.where} holds no samples (layout {kind}).", "Is it the right folder?")
    return source


def _files_at(address: str) -> Files:
    if "://" in address:
        return RemoteFiles(address)
    folder = Path(address).expanduser().absolute()
    return ArrivingFiles(folder) if (folder / LIST).is_file() else LocalFiles(folder)


def indexed_source(length: int, read: Callable[[int], Sample]) -> Source:
    """A source of `length` samples that `read` returns by number, for data in memory or synthetic data."""
    if length < 1:
        raise ValueError(f"length={length} must be 1 or more")
    return Source(IndexedSamples(length, read), LocalFiles(Path.cwd()))


def _recognised(names: Sequence[str], files: Files) -> LayoutName:
    if INDEX in names:
        return "tar"
    if _BINARY_INDEX in names:
        return "litdata" if "chunks" in _json(files, _BINARY_INDEX) else "mds"
    for kind, endings in _ENDINGS.items():
        if _ending(names, endings):
            return kind
    return "files"


_ENDINGS: dict[LayoutName, tuple[str, ...]] = {
    "tar": (".tar",),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrec"),
    "parquet": (".parquet",),
}


def _ending(names: Sequence[str], endings: tuple[str, ...]) -> list[str]:
    # TensorFlow's own data sets are called NAME.tfrecord-00001-of-00010.
    return [name for name in names if name.endswith(endings) or f"{endings[0]}-" in name]


def _open_tar(files: Files, names: Sequence[str]) -> Layout:
    if INDEX in names:
        index = index_from(_json(files, INDEX), f"{files.where}/{INDEX}")
        if missing := {shard.name for shard in index.shards} - set(names):
            raise JobError(f"{files.where} lacks {min(missing)}, which its {INDEX} names.", "Copy the folder again.")
        return tar.indexed(index)
    return tar.scanned(_folder(files, "tar"), _ending(names, _ENDINGS["tar"]))


def _open_tfrecord(files: Files, names: Sequence[str]) -> Layout:
    return TFRecords(_folder(files, "tfrecord"), _ending(names, _ENDINGS["tfrecord"]))


def _open_parquet(files: Files, names: Sequence[str]) -> Layout:
    return ParquetRows(_ending(names, _ENDINGS["parquet"]), files.open)


def _folder(files: Files, kind: str) -> Path:
    if isinstance(files, LocalFiles):
        return files.folder
    hint = f"Run `muster data index FOLDER` where the shards are, and copy {INDEX} and the .json files there too."
    if kind != "tar":
        hint = "Pack it with `muster data pack`, or have the job download it (mode download)."
    raise JobError(f"{files.where} has no index, so all of it had to be read to count its samples.", hint)


def _json(files: Files, name: str) -> Mapping[str, object]:
    try:
        found = json.loads(files.read(name))
    except ValueError as error:
        raise JobError(f"{files.where}/{name} is no JSON: {error}.", "Copy it again.") from error
    return found if isinstance(found, dict) else {}


def _open_binary(read: Callable[..., Layout]) -> Callable[[Files, Sequence[str]], Layout]:
    def opened(files: Files, names: Sequence[str]) -> Layout:
        where = f"{files.where}/{_BINARY_INDEX}"
        try:
            return read(_json(files, _BINARY_INDEX), where)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise JobError(f"{where} is not as its layout has it: {error!r}.", "Write the data set again.") from error

    return opened


_OPENERS: dict[LayoutName, Callable[[Files, Sequence[str]], Layout]] = {
    "tar": _open_tar,
    "files": lambda files, names: FolderOfFiles(_folder(files, "files")),
    "tfrecord": _open_tfrecord,
    "parquet": _open_parquet,
    "mds": _open_binary(binary.mds),
    "litdata": _open_binary(binary.litdata),
}


class ShardReaders:
    """The open shards of one worker: those of the current pool and of the next one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: dict[int, tuple[Reader, list[Local]]] = {}
        self._coming: dict[int, Future[list[Local]]] = {}
        self._remote = not isinstance(source.files, LocalFiles)
        self._fetchers = ThreadPoolExecutor(_FETCHES_AT_ONCE, "shards") if self._remote else None

    def prepare(self, pool: Pool) -> None:
        """Prepare the next pool: fetch remote files, and have the kernel read local ones ahead."""
        shards = _in_order_of_use(pool)
        self._source.files.will_fetch(name for shard in shards for name in self._source.layout.files(shard))
        for shard in shards:
            if shard not in self._open and shard not in self._coming and self._fetchers is not None:
                self._coming[shard] = self._fetchers.submit(self._fetch, shard)
        if not self._remote and self._source.layout.name != "files" and not self._source.layout.whole_shards:
            for shard, numbers in _by_shard(pool):
                self._reader(shard).will_need(numbers)

    def samples(self, pool: Pool) -> Iterable[Sample]:
        for shard, number in zip(pool.shards.tolist(), pool.samples.tolist(), strict=True):
            opened = self._open.get(shard)
            yield (opened[0] if opened else self._reader(shard)).read(number)

    def keep(self, *pools: Pool) -> None:
        """Close the shards that none of these pools needs."""
        needed = {shard for pool in pools for shard in np.unique(pool.shards).tolist()}
        for shard in self._open.keys() - needed:
            self._close(shard)

    def close(self) -> None:
        if self._fetchers is not None:
            self._fetchers.shutdown(cancel_futures=True)
        for coming in self._coming.values():
            if not coming.cancelled() and coming.exception() is None:
                for file in coming.result():
                    file.release()
        for shard in list(self._open):
            self._close(shard)

    def _reader(self, shard: int) -> Reader:
        if shard not in self._open:
            files = self._fetched(shard)
            reader = self._source.layout.open(shard, [file.path for file in files])
            self._open[shard] = reader, files
        return self._open[shard][0]

    def _fetched(self, shard: int) -> list[Local]:
        coming = self._coming.pop(shard, None)
        if coming is None or coming.exception() is not None:
            # A prefetch that failed is tried again; if it fails now, the error says why.
            return self._fetch(shard)
        return coming.result()

    def _fetch(self, shard: int) -> list[Local]:
        layout, found = self._source.layout, []
        try:
            for name in layout.files(shard):
                found.append(self._source.files.fetch(name, layout.sha256(name)))
        except BaseException:
            for file in found:
                file.release()
            raise
        return found

    def _close(self, shard: int) -> None:
        reader, files = self._open.pop(shard)
        reader.close()
        for file in files:
            file.release()


def _in_order_of_use(pool: Pool) -> list[int]:
    return list(dict.fromkeys(pool.shards.tolist()))


def _by_shard(pool: Pool) -> Iterable[tuple[int, list[int]]]:
    order = np.lexsort((pool.samples, pool.shards))
    shards, samples = pool.shards[order], pool.samples[order]
    cuts = np.flatnonzero(np.diff(shards)) + 1
    for part in np.split(np.arange(len(shards)), cuts):
        if len(part):
            yield int(shards[part[0]]), samples[part].tolist()
