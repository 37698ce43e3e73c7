"""Data elsewhere: fetched into the node's cache, verified, once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from tests.unit.training.data.shardsets import write_tars

from muster.errors import JobError
from muster.shards.pack import index_folder
from muster.storage.connectors.base import TransferError
from muster.training.data import Shuffle, Stream, numpy_batches, open_source


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Ten shards with an index, at an address."""
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    write_tars(tmp_path / "shards", [10] * 10)
    index_folder(tmp_path / "shards", lambda samples, size: None, 1)
    memory = fsspec.filesystem("memory")
    for file in (tmp_path / "shards").iterdir():
        memory.pipe(f"/set/{file.name}", file.read_bytes())
    yield "memory://set"
    memory.rm("/set", recursive=True)


def keys(address: str) -> list[str]:
    stream = Stream(address, 8, shuffle=Shuffle(shards=3, run=4, pool=16))
    return [str(sample["__key__"]) for batch in numpy_batches(stream) for sample in batch]


def test_every_shard_comes_once_and_stays(elsewhere: str, tmp_path: Path) -> None:
    first = keys(elsewhere)
    assert sorted(first) == [f"{number:06d}" for number in range(100)]
    trees = sorted((tmp_path / "cache" / "trees").glob("[0-9a-f]*"))
    assert len(trees) == 20  # a shard and the places of its samples, ten times
    memory = fsspec.filesystem("memory")
    for number in range(10):
        memory.pipe(f"/set/part-{number:03d}.tar", b"gone")
    assert keys(elsewhere) == first


def test_wrong_bytes_are_named(elsewhere: str) -> None:
    memory = fsspec.filesystem("memory")
    shard = memory.cat("/set/part-004.tar")
    memory.pipe("/set/part-004.tar", shard.replace(b"image 41", b"imagE 41"))
    with pytest.raises(TransferError, match=r"memory://set/part-004.tar is not what its index says"):
        keys(elsewhere)


def test_a_cache_that_is_too_small_says_what_it_needs(elsewhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE_BYTES", "1000")
    with pytest.raises(TransferError, match=r"in the cache .*: its limit is"):
        keys(elsewhere)


def test_the_cache_stays_within_its_limit(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (tmp_path / "shards" / "part-000.tar").stat().st_size
    monkeypatch.setenv("MUSTER_CACHE_BYTES", str(9 * size))
    assert len(set(keys(elsewhere))) == 100
    kept = sum(file.stat().st_size for file in (tmp_path / "cache" / "trees").glob("*/data/*"))
    assert 0 < kept <= 9 * size


def test_without_an_index_it_is_refused_with_the_way_out(elsewhere: str) -> None:
    fsspec.filesystem("memory").rm("/set/shards.json")
    with pytest.raises(JobError, match="muster data index"):
        open_source(elsewhere)


def test_a_source_travels_to_a_worker(elsewhere: str) -> None:
    source = pickle.loads(pickle.dumps(open_source(elsewhere)))
    assert len(source) == 100 and source.files.read("shards.json")


def test_an_index_cannot_name_files_outside(elsewhere: str) -> None:
    source = open_source(elsewhere)
    with pytest.raises(JobError, match="would leave its folder"):
        source.files.fetch("../../etc/passwd", None)
