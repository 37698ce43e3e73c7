"""Streams through PyTorch's loader."""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from tests.unit.training.data.shardsets import write_tars

from muster.training.data import Sample, Stream, TorchLoader
from muster.training.data.parcels import Packer, Unpacker


def test_a_parcel_is_unpacked_as_it_was() -> None:
    samples: list[Sample] = [{"__key__": "a", "jpg": b"x" * 70_000, "cls": b"", "n": 3}, {"__key__": "b", "jpg": b"yz"}]
    pack, unpack = Packer(2), Unpacker()
    assert unpack(pack([dict(sample) for sample in samples])) == samples
    assert unpack(pack([{"n": 1}])) == [{"n": 1}]


def test_memory_is_used_again_only_for_the_batch_after_those_that_are_under_way() -> None:
    pack, unpack = Packer(2), Unpacker()
    parcels = [pack([{"jpg": bytes([number]) * (10 - number)}]) for number in range(5)]
    places = [parcel.content.data_ptr() for parcel in parcels]
    assert len(set(places[:4])) == 4 and places[4] == places[0]
    assert [unpack(parcel)[0]["jpg"] for parcel in parcels[1:]] == [bytes([n]) * (10 - n) for n in range(1, 5)]
    larger = pack([{"jpg": b"x" * 100}])
    assert larger.content.data_ptr() != places[1] and unpack(larger) == [{"jpg": b"x" * 100}]


def test_samples_come_whole_from_workers_and_in_the_same_order_as_without(tmp_path: Path) -> None:
    write_tars(tmp_path, [20, 30, 10])
    batches = [list(TorchLoader(Stream(tmp_path, 8, shuffle=None), workers=workers)) for workers in (0, 1)]
    assert batches[0] == batches[1]
    assert len(batches[0]) == 8 and batches[0][1][2]["jpg"] == b"image 10" * 5


def test_decoded_samples_become_tensors_and_random_numbers_of_the_training_are_not_drawn(tmp_path: Path) -> None:
    write_tars(tmp_path, [16])
    before = torch.get_rng_state()
    stream = Stream(tmp_path, 8, shuffle=None)
    labels = torch.cat(list(TorchLoader(stream, lambda sample: int(sample["cls"]))))  # type: ignore[arg-type]
    assert labels.tolist() == [number % 7 for number in range(16)]
    assert torch.equal(before, torch.get_rng_state()) and stream.epoch == 1


def test_a_worker_leaves_what_it_shares_with_the_training_alone_when_it_collects_garbage(tmp_path: Path) -> None:
    write_tars(tmp_path, [16])
    stream = Stream(tmp_path, 8, shuffle=None)
    frozen = torch.cat(list(TorchLoader(stream, lambda sample: gc.get_freeze_count(), workers=1)))
    assert int(frozen.min()) > 1000 and gc.get_freeze_count() == 0
