"""Files that the real writers made, whole, in pieces, damaged and as garbage. `data` holds what torch and W&B wrote."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub import dtypes
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from muster.agent.ship.eventfiles import tensorboard, wandb
from muster.agent.ship.eventfiles.points import Param, Point, Taken

DATA = Path(__file__).parent / "data"
TORCH, OFFLINE = (DATA / name for name in ("events.out.tfevents.1.torch", "run-offline.wandb"))
Take = Callable[[bytes, int], Taken]


def test_scalars_of_torchs_writer_are_read_with_step_and_time() -> None:
    data = TORCH.read_bytes()
    taken = tensorboard.take(data, 0)
    losses = [item for item in taken.items if isinstance(item, Point) and item.tag == "loss"]
    assert [(item.step, item.at) for item in losses] == [(float(step), 1_700_000_000.0 + step) for step in range(12)]
    assert losses[3].value == 0.25
    found = {item.tag: item for item in taken.items if isinstance(item, Point)}
    assert math.isnan(found["nan"].value) and found["nan"].shown == "NaN"
    assert found["tensor"].value == 2.5 and found["double"].value == 1 / 3
    assert set(found) == {"loss", "nan", "tensor", "double"}, "histograms and texts are no numbers"
    assert (taken.consumed, taken.lost, taken.broken) == (len(data), 0, False)


@pytest.mark.parametrize("kind", [dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64])
def test_tensors_of_one_number_are_read_whatever_their_type(tmp_path: Path, kind: dtypes.DType) -> None:
    writer = EventFileWriter(str(tmp_path))
    for shape in ([], [1], [2]):
        tensor = tensor_util.make_tensor_proto([3, 4][: shape[0]] if shape else 3, dtype=kind)
        value = Summary.Value(tag=f"t{shape}", tensor=tensor)
        writer.add_event(Event(wall_time=5.0, step=-7, summary=Summary(value=[value])))
    writer.close()
    (file,) = tmp_path.iterdir()
    items = tensorboard.take(file.read_bytes(), 0).items
    assert items == [Point("t[]", 3.0, -7.0, 5.0), Point("t[1]", 3.0, -7.0, 5.0)]


def test_a_large_record_is_passed_over_without_being_read() -> None:
    head = struct.pack("<Q", 1 << 30)
    taken = tensorboard.take(head + struct.pack("<I", tensorboard._masked(head)), 0)
    assert (taken.consumed, taken.broken) == ((1 << 30) + 16, False)


def test_history_and_configuration_of_wandb_are_read() -> None:
    data = OFFLINE.read_bytes()
    taken = wandb.take(data, 0)
    assert [item for item in taken.items if isinstance(item, Param)] == [
        Param("lr", "0.1"), Param("layers", "[1, 2]"), Param("name", "x"),
    ]  # fmt: skip
    points = [item for item in taken.items if isinstance(item, Point)]
    losses = [item for item in points if item.tag == "loss"]
    assert [item.step for item in losses] == [float(step) for step in range(13)]
    assert losses[1].value == 0.5 and math.isnan(losses[12].value) and losses[0].at > 1.7e9
    assert {item.tag for item in points} == {"loss", "train.acc", "late"}
    assert points[-1][:3] == ("late", 3.0, 200.0)
    assert (taken.consumed, taken.lost, taken.broken) == (len(data), 0, False)


@pytest.mark.parametrize(("take", "file"), [(tensorboard.take, TORCH), (wandb.take, OFFLINE)])
@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_a_file_that_grows_gives_each_number_once(take: Take, file: Path, size: int) -> None:
    data, offset, items = file.read_bytes(), 0, list[Point | Param]()
    for end in [*range(size, len(data), size), len(data)]:
        taken = take(data[offset:end], offset)
        items += taken.items
        offset += taken.consumed
    assert (offset, repr(items)) == (len(data), repr(take(data, 0).items))


@pytest.mark.parametrize(("take", "file"), [(tensorboard.take, TORCH), (wandb.take, OFFLINE)])
@given(at=st.integers(0, 5000), junk=st.binary(min_size=1, max_size=40))
def test_damage_raises_nothing_and_invents_no_tags(take: Take, file: Path, at: int, junk: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[at : at + len(junk)] = junk
    taken = take(bytes(data), 0)
    assert taken.consumed >= 0
    assert len(taken.items) <= len(take(file.read_bytes(), 0).items) + 40


@pytest.mark.parametrize("take", [tensorboard.take, wandb.take])
@given(junk=st.binary(max_size=300), offset=st.sampled_from([0, 7, 32_760, 40_000]))
def test_garbage_raises_nothing(take: Take, junk: bytes, offset: int) -> None:
    assert take(junk, offset).consumed >= 0


def test_wandb_goes_on_behind_a_damaged_block() -> None:
    record = OFFLINE.read_bytes()[7:]
    # A block of nonsense before records that begin where the next block does.
    data = b":W&B\xe1\xbe\0" + b"\xff" * (32768 - 7) + record
    taken = wandb.take(data, 0)
    assert taken.lost == 1 and len(taken.items) == len(wandb.take(OFFLINE.read_bytes(), 0).items)
