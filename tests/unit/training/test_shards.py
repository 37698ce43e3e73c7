"""A rank's part of a checkpoint: what PyTorch's own reader finds in it, and when the first layout serves again."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

from muster.training import integrity, shards
from muster.training.shards import Shards

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

TYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.float8_e4m3fn,
    torch.uint16,
    torch.complex64,
)


def some() -> dict[str, torch.Tensor]:
    return {
        "small": torch.randn(3, 4),
        "large": torch.randn(500, 40),
        "across": torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last),
        "number": torch.tensor(7),
        "flag": torch.tensor([True, False]),
        "none": torch.empty(0, 4),
    }


def written(folder: Path, writer: Shards, tensors: dict[str, torch.Tensor], again: bool = False) -> dict[str, str]:
    folder.mkdir()
    return writer.write(folder, tensors, again)


def read(folder: Path, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    dcp.load(found, storage_reader=FileSystemReader(folder), no_dist=True)
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(
        bytes(one[name].flatten().view(torch.uint8)) == bytes(other[name].flatten().view(torch.uint8)) for name in one
    )


def test_pytorch_reads_what_is_written(tmp_path):
    tensors = some()
    written(tmp_path / "one", Shards(0, 1, None), tensors)
    assert same(read(tmp_path / "one", tensors), tensors)


def test_the_second_time_the_same_memory_is_written_with_what_it_holds_then(tmp_path):
    tensors, writer = some(), Shards(0, 1, None)
    assert not writer.repeats(tensors)
    written(tmp_path / "one", writer, tensors)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    for tensor in tensors.values():
        tensor.copy_(torch.ones_like(tensor))
    assert writer.repeats(tensors)
    written(tmp_path / "two", writer, tensors, again=True)
    assert same(read(tmp_path / "two", tensors), tensors) and same(read(tmp_path / "one", tensors), before)


def test_other_tensors_are_planned_anew(tmp_path):
    writer = Shards(0, 1, None)
    written(tmp_path / "one", writer, some())
    tensors = {**some(), "more": torch.randn(5)}
    assert not writer.repeats(tensors)
    written(tmp_path / "two", writer, tensors)
    assert same(read(tmp_path / "two", tensors), tensors)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_of_number_comes_back(tmp_path, kind):
    tensors = {"numbers": (10 * torch.randn(30)).to(kind), "many": (10 * torch.randn(3000)).to(kind)}
    writer = Shards(0, 1, None)
    written(tmp_path / "one", writer, tensors)
    if writer.repeats(tensors):
        written(tmp_path / "two", writer, tensors, again=True)
    for folder in tmp_path.iterdir():
        assert same(read(folder, tensors), tensors)


def test_a_part_of_a_larger_tensor_is_saved_without_the_rest_and_each_time_anew(tmp_path):
    whole = torch.randn(1000, 100)
    tensors, writer = {"part": whole[10:20]}, Shards(0, 1, None)
    written(tmp_path / "one", writer, tensors)
    assert same(read(tmp_path / "one", tensors), tensors) and not writer.repeats(tensors)
    assert sum(path.stat().st_size for path in (tmp_path / "one").iterdir()) < 20_000


def test_the_hashes_are_those_of_the_files(tmp_path):
    tensors, writer = some(), Shards(0, 1, None)
    for name, again in (("one", False), ("two", True)):
        hashes = written(tmp_path / name, writer, tensors, again)
        assert set(hashes) >= {"__0_0.distcp"}
        integrity.write_list(tmp_path / name, 0, integrity.About(1, 1, None, None), hashes)
        assert integrity.find_damage(tmp_path / name) is None


def test_after_a_failed_first_time_nothing_is_repeated(tmp_path, monkeypatch):
    tensors, writer = some(), Shards(0, 1, None)
    with monkeypatch.context() as broken:
        broken.setattr(shards, "write_pieces", lambda *_: 1 / 0)
        with pytest.raises(dcp.CheckpointException):
            written(tmp_path / "one", writer, tensors)
    assert not writer.repeats(tensors)
    written(tmp_path / "two", writer, tensors)
    assert same(read(tmp_path / "two", tensors), tensors)


def test_pieces_that_the_system_takes_in_parts_are_all_written(tmp_path, monkeypatch):
    pieces = [b"a" * 10, memoryview(b"b" * 3000), b"", b"c" * 7, memoryview(b"d" * 5000)]
    monkeypatch.setattr(os, "writev", lambda fd, some: os.write(fd, b"".join(some)[:1234]))
    digest = shards.write_pieces(tmp_path / "file", pieces)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)
    assert digest == integrity._sha256(tmp_path / "file")
