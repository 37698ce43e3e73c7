"""Every layout gives the samples that were written, and says what is wrong with what it cannot read."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.training.data.shardsets import write_records, write_tars

from muster.errors import JobError, MusterError, NotFound
from muster.training.data import Stream, numpy_batches, open_source
from muster.training.data.layouts.base import Sample

WRITTEN = Path(__file__).with_name("written")
"""Small sets written by MosaicML Streaming 0.13.0 and LitData 0.2.76 themselves."""


def all_samples(folder: Path, **options: object) -> list[Sample]:
    stream = Stream(folder, 4, shuffle=None, **options)  # type: ignore[arg-type]
    return [sample for batch in numpy_batches(stream) for sample in batch]


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_shards(tmp_path: Path, tar_format: int) -> None:
    long = "" if tar_format == tarfile.USTAR_FORMAT else "a-folder/" * 15
    keys = write_tars(tmp_path, [5, 0, 3], tar_format, long)
    found = all_samples(tmp_path)
    assert [sample["__key__"] for sample in found] == keys
    assert found[6]["jpg"] == b"image 6" * 5 and found[6]["cls"] == b"6"


def test_a_part_that_only_some_samples_have(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("1.jpg", "2.jpg", "2.json", "3.jpg"):
        (tmp_path / "a" / name).write_text(name)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for file in sorted((tmp_path / "a").iterdir()):
            tar.add(file, file.name)
    found = all_samples(tmp_path)
    assert [sorted(set(sample) - {"__key__", "__seed__"}) for sample in found] == [["jpg"], ["jpg", "json"], ["jpg"]]


def test_a_folder_of_files(tmp_path: Path) -> None:
    for name in ("dog/1.JPEG", "dog/2.jpg", "cat/1.jpg", "cat/1.json", "cat/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = all_samples(tmp_path)
    assert [(sample["__key__"], sample["jpg"], sample["cls"]) for sample in found] == [
        ("cat/1", b"cat/1.jpg", b"0"),
        ("dog/1", b"dog/1.JPEG", b"1"),
        ("dog/2", b"dog/2.jpg", b"1"),
    ]
    assert found[0]["json"] == b"cat/1.json"
    assert open_source(tmp_path).classes == ("cat", "dog")


def test_tfrecords(tmp_path: Path) -> None:
    records = [bytes([number]) * number for number in range(9)]
    write_records(tmp_path / "a.tfrecord", records[:4])
    write_records(tmp_path / "b.tfrecord-00001-of-00002", records[4:])
    assert [sample["record"] for sample in all_samples(tmp_path)] == records


def test_parquet(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 10)):
        rows = [{"text": f"row {number}", "number": number} for number in range(first, first + 10)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet", row_group_size=4)
    source = open_source(tmp_path)
    assert list(source.layout.counts) == [4, 4, 2, 4, 4, 2]
    assert [sample["text"] for sample in all_samples(tmp_path)] == [f"row {number}" for number in range(20)]


def test_what_mosaicml_streaming_wrote() -> None:
    found = all_samples(WRITTEN / "mds")
    assert [sample["label"] for sample in found] == list(range(23))
    assert found[7]["about"] == {"n": 7} and found[7]["image"] == b"\7" * 8
    assert found[7]["name"] == "sample 7" and found[7]["score"] == 3.5


def test_what_litdata_wrote() -> None:
    found = all_samples(WRITTEN / "litdata")
    assert [(sample["label"], sample["name"]) for sample in found] == [(n, f"sample {n}") for n in range(23)]
    assert found[7]["image"] == b"\7" * 8


def _cut_tar(folder: Path) -> None:
    write_tars(folder, [5])
    shard = folder / "part-000.tar"
    shard.write_bytes(shard.read_bytes()[:3000])


def _garbage_tar(folder: Path) -> None:
    (folder / "x.tar").write_bytes(b"no tar at all " * 100)


def _cut_records(folder: Path) -> None:
    write_records(folder / "a.tfrecord", [b"x" * 100])
    (folder / "a.tfrecord").write_bytes((folder / "a.tfrecord").read_bytes()[:50])


def _packed_records(folder: Path) -> None:
    (folder / "a.tfrecord").write_bytes(gzip.compress(b"x" * 100))


def _compressed_mds(folder: Path) -> None:
    index = json.loads((WRITTEN / "mds" / "index.json").read_text())
    index["shards"][0]["compression"] = "zstd"
    (folder / "index.json").write_text(json.dumps(index))


def _strange_index(folder: Path) -> None:
    (folder / "index.json").write_text('{"shards": [{"format": "mds"}]}')


def _broken_index(folder: Path) -> None:
    (folder / "shards.json").write_text('{"samples": "many"}')


def _no_json(folder: Path) -> None:
    (folder / "shards.json").write_text("no JSON")


def _mds_elsewhere(folder: Path) -> None:
    index = json.loads((WRITTEN / "mds" / "index.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = "../../secret"
    (folder / "index.json").write_text(json.dumps(index))


def _mds_of(folder: Path, samples: int) -> None:
    index = json.loads((WRITTEN / "mds" / "index.json").read_text())
    index["shards"][0]["samples"] = samples
    (folder / "index.json").write_text(json.dumps(index))


def _missing_shard(folder: Path) -> None:
    shard = {"name": "gone.tar", "samples": 1, "size": 4096, "sha256": "0" * 64}
    index = {"samples": 1, "bytes": 1, "classes": [], "shards": [shard], "layout": "tar"}
    (folder / "shards.json").write_text(json.dumps(index))


def _index_of(folder: Path, samples: int, named: int) -> None:
    shard = {"name": "a.tar", "samples": samples, "size": 4096, "sha256": "0" * 64}
    index = {"samples": named, "bytes": 1, "classes": [], "shards": [shard], "layout": "tar"}
    (folder / "shards.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: _index_of(folder, -6, -6), "a.tar has -6 samples"),
        (lambda folder: _index_of(folder, 10**15, 10**15), "a.tar has 1000000000000000 samples in 4096 bytes"),
        (lambda folder: _mds_of(folder, -1), "a file of -1 samples"),
        (lambda folder: _mds_of(folder, 10**15), "a file of 1000000000000000 samples"),
        (lambda folder: _index_of(folder, 6, 7), "do not hold the 7 samples"),
        (_cut_tar, "is cut off"),
        (_garbage_tar, "no tar file that can be read"),
        (_cut_records, "no whole record begins at byte 0"),
        (_packed_records, "compressed"),
        (_compressed_mds, "compression zstd"),
        (_strange_index, "not as its layout has it"),
        (_broken_index, "no index of shards"),
        (_no_json, "is no JSON"),
        (_mds_elsewhere, "would leave its folder"),
        (_missing_shard, "lacks gone.tar"),
        (lambda folder: None, "holds no files"),
    ],
)
def test_what_cannot_be_read_is_named_before_anything_starts(tmp_path: Path, spoil: object, message: str) -> None:
    spoil(tmp_path)  # type: ignore[operator]
    with pytest.raises((MusterError, ValueError), match=message) as refused:
        open_source(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_a_shard_that_changed_meanwhile_is_named(tmp_path: Path) -> None:
    write_tars(tmp_path, [5])
    stream = Stream(tmp_path, 2)
    write_tars(tmp_path, [4])
    with pytest.raises(ValueError, match=r"part-000.tar holds 4 samples, and 5 when the data was opened"):
        list(numpy_batches(stream))


def test_an_mds_shard_that_does_not_fit_its_index(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN / "mds", tmp_path / "mds")
    shutil.copy(tmp_path / "mds" / "shard.00003.mds", tmp_path / "mds" / "shard.00000.mds")
    with pytest.raises((ValueError, EOFError), match=r"shard.00000.mds"):
        all_samples(tmp_path / "mds")


def test_an_mds_shard_whose_places_are_damaged(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN / "mds", tmp_path / "mds")
    shard = tmp_path / "mds" / "shard.00000.mds"
    content = bytearray(shard.read_bytes())
    content[4:8] = b"\xff\xff\xff\xff"
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard.00000.mds is damaged"):
        all_samples(tmp_path / "mds")


def test_no_such_folder() -> None:
    with pytest.raises(NotFound, match="there is no folder /nowhere"):
        open_source("/nowhere")


def test_an_address_that_nobody_knows() -> None:
    with pytest.raises(JobError, match="nonsense://x is no address"):
        open_source("nonsense://x")
