"""The layouts of MosaicML Streaming (MDS) and LitData: files that begin with the offset of each sample.

Both have an `index.json` in the same folder. Numbers, texts and JSON become values; images, arrays and pickled objects
stay bytes, for your own decoding. Compressed and encrypted files are refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from muster.errors import JobError
from muster.host.files import is_safe_path
from muster.training.data.layouts.base import Layout, OpenFile, Sample, Value, runs

_NUMBERS = {"int": "<i8", "float": "<f8", "bool": "?"} | {
    f"{kind}{bits}": f"<{kind[0]}{bits // 8}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
}

_MOST_SAMPLES = 1 << 30
"""The most samples of one file: their offsets are 32-bit numbers."""


@dataclass(frozen=True)
class Column:
    """One part of every sample."""

    name: str
    encoding: str
    size: int | None
    """The size, if it is the same in every sample; otherwise it is stored before the sample's bytes."""

    def value(self, data: bytes) -> Value:
        kind = self.encoding.partition(":")[0]
        if kind in ("str", "text"):
            return data.decode()
        if kind == "json":
            value: Value = json.loads(data)
            return value
        if (dtype := _NUMBERS.get(kind)) and len(data) == np.dtype(dtype).itemsize:
            return np.frombuffer(data, dtype)[0].item()
        return data


class BinaryShards(Layout):
    def __init__(self, name: str, files: Sequence[str], counts: Sequence[int], columns: Sequence[Column]) -> None:
        if outside := [file for file in files if not is_safe_path(file)]:
            raise ValueError(f"it names a file {outside[0]!r}, which would leave its folder")
        if wrong := [count for count in counts if not 0 <= count < _MOST_SAMPLES]:
            raise ValueError(f"it names a file of {wrong[0]} samples")
        self.name = name
        self._files, self.counts, self._columns = list(files), list(counts), list(columns)

    def files(self, shard: int) -> tuple[str, ...]:
        return (self._files[shard],)

    def open(self, shard: int, paths: Sequence[Path]) -> BinaryReader:
        return BinaryReader(paths[0], self._columns, self.counts[shard])


class BinaryReader:
    def __init__(self, path: Path, columns: Sequence[Column], count: int) -> None:
        self._file, self._columns = OpenFile(path), columns
        self._sizes = struct.Struct(f"<{sum(column.size is None for column in columns)}I")
        table = self._file.read(0, 4 * (count + 2))
        found, *self._places = struct.unpack(f"<{count + 2}I", table)
        if found != count:
            self.close()
            raise ValueError(f"{path} holds {found} samples, and its index.json says {count}: copy both again")
        if sorted(self._places) != self._places:
            self.close()
            raise ValueError(f"{path} is damaged: its samples do not follow each other. Copy it again")

    def read(self, number: int) -> Sample:
        begin, end = self._places[number], self._places[number + 1]
        data = self._file.read(begin, end - begin)
        at, sizes = self._sizes.size, iter(self._sizes.unpack_from(data))
        sample: Sample = {"__key__": f"{self._file.path.name}/{number}"}
        for column in self._columns:
            size = next(sizes) if column.size is None else column.size
            sample[column.name] = column.value(data[at : at + size])
            at += size
        if at > len(data):
            raise ValueError(f"{self._file.path} is damaged: sample {number} is cut off. Copy it again")
        return sample

    def will_need(self, numbers: Sequence[int]) -> None:
        self._file.will_need((self._places[first], self._places[last + 1]) for first, last in runs(numbers))

    def close(self) -> None:
        self._file.close()


def mds(index: Mapping[str, Any], where: str) -> BinaryShards:
    """From MosaicML Streaming's index.json."""
    shards = index["shards"]
    for shard in shards:
        if shard["format"] != "mds" or shard.get("zip_data") or shard.get("compression"):
            what = f"format {shard['format']}, compression {shard.get('compression')}"
            raise JobError(f"{where} has shards that cannot be read here ({what}).", "Write them as plain MDS.")
    first = shards[0] if shards else {"column_names": [], "column_encodings": [], "column_sizes": []}
    columns = [
        Column(*about)
        for about in zip(first["column_names"], first["column_encodings"], first["column_sizes"], strict=True)
    ]
    return BinaryShards(
        "mds", [shard["raw_data"]["basename"] for shard in shards], [shard["samples"] for shard in shards], columns
    )


def litdata(index: Mapping[str, Any], where: str) -> BinaryShards:
    """From LitData's index.json."""
    config, chunks = index["config"], index["chunks"]
    if config.get("compression") or config.get("encryption"):
        what = f"compression {config.get('compression')}, encryption {config.get('encryption')}"
        raise JobError(f"{where} has chunks that cannot be read here ({what}).", "Write them as plain chunks.")
    formats = config["data_format"]
    names = _leaf_names(json.loads(config["data_spec"])[1] if config.get("data_spec") else None, "")
    if len(names) != len(formats):
        names = [str(number) for number in range(len(formats))]
    columns = [Column(name, kind, None) for name, kind in zip(names, formats, strict=True)]
    return BinaryShards(
        "litdata", [chunk["filename"] for chunk in chunks], [chunk["chunk_size"] for chunk in chunks], columns
    )


def _leaf_names(spec: Mapping[str, Any] | None, path: str) -> list[str]:
    """The names of a nested structure's leaves in their order, joined by dots; lists count from 0."""
    if spec is None or not spec.get("children_spec"):
        return [path or "0"]
    context = json.loads(spec["context"]) if isinstance(spec.get("context"), str) else spec.get("context")
    children = spec["children_spec"]
    keys = context if isinstance(context, list) and len(context) == len(children) else range(len(children))
    return [
        name
        for key, child in zip(keys, children, strict=True)
        for name in _leaf_names(child, f"{path}.{key}" if path else str(key))
    ]
