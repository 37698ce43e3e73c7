"""Checkpoints of one process: exact, whole, verified, and what happens when they are not."""

import errno
import json
import random
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from muster.training import Checkpointer, CheckpointFailed, NoGoodCheckpoint, integrity

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Training:
    def __init__(self, optimizer=torch.optim.SGD, width=8, **more):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.2), nn.Linear(width, 2))
        self.optimizer = optimizer(self.model.parameters(), lr=0.1, **(more or {"momentum": 0.9}))

    def step(self):
        loss = self.model(torch.randn(8, 4) * random.random() * numpy.random.rand()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def checkpointer(training: Training, folder: Path, **more) -> Checkpointer:
    return Checkpointer(training.model, training.optimizer, folder, **more)


def trained(folder: Path, steps: int = 4, **more) -> tuple[Training, Checkpointer]:
    """A training with a checkpoint after each step."""
    training = Training()
    keeper = checkpointer(training, folder, **more)
    for step in range(1, steps + 1):
        training.step()
        keeper.save(step, {"step": step})
    keeper.close()
    return training, keeper


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {"weight_decay": 0.01}),
        (torch.optim.SGD, {"momentum": 0}),
    ],
)
def test_what_is_loaded_goes_on_bit_for_bit(tmp_path, optimizer, options):
    training = Training(optimizer, **options)
    for _ in range(3):
        training.step()
    keeper = checkpointer(training, tmp_path)
    keeper.save(3, {"step": 3, "order": torch.arange(3), "text": "kept"})
    expected = [training.step() for _ in range(3)]
    keeper.close()

    fresh = Training(optimizer, **options)
    random.seed(99)
    progress = checkpointer(fresh, tmp_path).load()
    assert (progress["step"], progress["order"].tolist(), progress["text"]) == (3, [0, 1, 2], "kept")
    assert [fresh.step() for _ in range(3)] == expected


def test_saving_takes_the_values_of_the_moment(tmp_path):
    training = Training()
    keeper = checkpointer(training, tmp_path)
    before = training.model[0].weight.detach().clone()
    keeper.save(0)
    for _ in range(5):
        training.step()
    keeper.close()
    checkpointer(training, tmp_path).load()
    assert torch.equal(training.model[0].weight, before)


def test_nothing_saved_is_nothing_to_load(tmp_path):
    assert checkpointer(Training(), tmp_path).load() is None


def test_the_last_few_and_the_best_are_kept(tmp_path):
    training = Training()
    keeper = checkpointer(training, tmp_path, keep_last=2)
    for step, metric in enumerate((0.1, 0.7, 0.3, None, 0.2), 1):
        keeper.save(step, {"step": step}, metric=metric)
    keeper.close()
    assert steps_in(tmp_path) == [2, 4, 5]
    assert (tmp_path / "step_2" / "best").exists() and not (tmp_path / "step_5" / "best").exists()
    again = checkpointer(training, tmp_path, keep_last=2)
    assert again.load("best")["step"] == 2
    assert again.load()["step"] == 5
    again.save(6, {"step": 6}, metric=0.5)
    again.close()
    assert steps_in(tmp_path) == [2, 5, 6]


def test_where_less_is_better_the_least_is_kept(tmp_path):
    keeper = checkpointer(Training(), tmp_path, keep_last=1, best="min")
    for step, metric in enumerate((0.5, 0.2, 0.9), 1):
        keeper.save(step, metric=metric)
    keeper.close()
    assert steps_in(tmp_path) == [2, 3]


def damage_bytes(folder):
    with (folder / "__0_0.distcp").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff\xff\xff")


def cut(folder):
    with (folder / "rank_00000.pt").open("r+b") as file:
        file.truncate(10)


DAMAGE = {
    "other bytes": damage_bytes,
    "cut off": cut,
    "shard gone": lambda folder: (folder / "__0_0.distcp").unlink(),
    "list gone": lambda folder: (folder / "rank_00000.json").unlink(),
    "list cut": lambda folder: (folder / "rank_00000.json").write_text('{"world'),
    "index gone": lambda folder: (folder / ".metadata").unlink(),
    "a rank's part never came": lambda folder: (folder / "rank_00000.json").write_text(
        json.dumps({**integrity.read_list(folder), "world_size": 2})
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, damage, caplog):
    trained(tmp_path)
    damage(tmp_path / "step_4")
    assert checkpointer(Training(), tmp_path).load()["step"] == 3
    assert "the checkpoint of step 4 is damaged and passed over" in caplog.text


def test_where_all_are_damaged_nothing_starts_over_in_silence(tmp_path):
    trained(tmp_path, steps=2)
    for folder in tmp_path.glob("step_*"):
        cut(folder)
    with pytest.raises(NoGoodCheckpoint, match=r"step 2 \(rank_00000.pt has 10 bytes.*step 1"):
        checkpointer(Training(), tmp_path).load()


def test_a_checkpoint_of_another_model_says_so(tmp_path):
    trained(tmp_path)
    other = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    with pytest.raises(NoGoodCheckpoint, match=r"lacks model.1.weight .* another model"):
        Checkpointer(other, None, tmp_path).load()
    with pytest.raises(NoGoodCheckpoint, match=r"lacks model.0.bias \(\d+ such\), or has it in another shape"):
        checkpointer(Training(width=6), tmp_path).load()


def test_a_checkpoint_of_another_optimizer_says_so(tmp_path):
    trained(tmp_path)
    with pytest.raises(ValueError, match="another optimizer than this AdamW"):
        checkpointer(Training(torch.optim.AdamW, weight_decay=0.1), tmp_path).load()


def test_an_unfinished_one_is_not_seen_and_does_not_disturb(tmp_path):
    trained(tmp_path)
    (tmp_path / ".step_5.tmp").mkdir()
    (tmp_path / ".step_5.tmp" / "__0_0.distcp").write_bytes(b"half")
    training = Training()
    keeper = checkpointer(training, tmp_path)
    assert keeper.load()["step"] == 4
    keeper.save(5, {"step": 5})
    keeper.close()
    assert checkpointer(training, tmp_path).load()["step"] == 5


def test_the_best_is_found_though_the_newest_is_damaged(tmp_path):
    keeper = checkpointer(Training(), tmp_path)
    for step, metric in ((1, 0.5), (2, 0.9), (3, 0.7)):
        keeper.save(step, {"step": step}, metric=metric)
    keeper.close()
    for damage in ("{", "[]", "{}"):
        (tmp_path / "step_3" / integrity.list_name(0)).write_text(damage)
        assert checkpointer(Training(), tmp_path).load("best") == {"step": 2}


def test_what_a_killed_training_left_is_removed_with_the_next_save(tmp_path):
    trained(tmp_path, steps=1)
    for name in (".step_7.tmp", ".replaced_5.tmp"):
        shutil.copytree(tmp_path / "step_1", tmp_path / name)
    trained(tmp_path, steps=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_1", "step_2"]


def test_saving_the_same_step_again_replaces_it(tmp_path):
    training, keeper = trained(tmp_path, steps=1)
    keeper.save(1, {"step": "again"})
    keeper.close()
    assert checkpointer(training, tmp_path).load()["step"] == "again"
    assert not list(tmp_path.glob(".*"))


@pytest.fixture
def full_disk(monkeypatch):
    """Syncing fails as it does where no space is left, while `on` is set."""
    import os

    class Disk:
        on = False

    disk, sync = Disk(), os.fsync

    def fsync(descriptor):
        if disk.on:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return disk


def test_a_full_disk_costs_one_checkpoint_and_is_told(tmp_path, full_disk, caplog):
    training, keeper = trained(tmp_path, steps=2)
    full_disk.on = True
    keeper.save(3, {"step": 3})
    keeper.wait()
    assert "the checkpoint of step 3 was not written: rank 0: OSError: [Errno 28] No space left" in caplog.text
    assert steps_in(tmp_path) == [1, 2] and not list(tmp_path.glob(".*"))
    full_disk.on = False
    keeper.save(4, {"step": 4})
    keeper.close()
    assert checkpointer(training, tmp_path).load()["step"] == 4


def test_a_disk_that_stays_full_ends_the_training(tmp_path, full_disk):
    _, keeper = trained(tmp_path, steps=1)
    full_disk.on = True
    with pytest.raises(CheckpointFailed, match=r"3 checkpoints in a row could not be written.*No space left"):
        for step in range(2, 9):
            keeper.save(step)
    assert steps_in(tmp_path) == [1]


def test_the_end_of_a_training_fails_where_its_last_checkpoint_did(tmp_path, full_disk):
    _, keeper = trained(tmp_path, steps=1)
    full_disk.on = True
    keeper.save(2)
    with pytest.raises(CheckpointFailed, match="the last checkpoint could not be written"):
        keeper.close()


def test_a_full_disk_is_named_where_the_writer_names_something_else(tmp_path, monkeypatch, caplog):
    _, keeper = trained(tmp_path, steps=1)
    no_space = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: no_space)
    monkeypatch.setattr(integrity, "write_list", lambda *about: 1 / 0)
    keeper.save(2)
    keeper.wait()
    assert "No space left on device: 0.0 MB are free" in caplog.text and "ZeroDivisionError" in caplog.text


def test_under_muster_the_folders_are_those_of_the_run(tmp_path, monkeypatch):
    trained(tmp_path / "before")
    monkeypatch.setenv("MUSTER_CHECKPOINT_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("MUSTER_RESUME_DIR", str(tmp_path / "before" / "step_4"))
    training = Training()
    keeper = Checkpointer(training.model, training.optimizer)
    assert keeper.load()["step"] == 4
    keeper.save(5, {"step": 5})
    keeper.close()
    assert steps_in(tmp_path / "own") == [5]


def test_what_muster_fetched_and_is_no_checkpoint_of_this_kind_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "resume").mkdir()
    monkeypatch.setenv("MUSTER_RESUME_DIR", str(tmp_path / "resume"))
    with pytest.raises(NoGoodCheckpoint, match="not made by this class"):
        checkpointer(Training(), tmp_path / "own").load()


@pytest.mark.parametrize("damage", ["{", "[]", "{}"])
def test_what_muster_fetched_and_cannot_be_read_is_an_error(tmp_path, monkeypatch, damage):
    (tmp_path / "resume").mkdir()
    (tmp_path / "resume" / integrity.list_name(0)).write_text(damage)
    monkeypatch.setenv("MUSTER_RESUME_DIR", str(tmp_path / "resume"))
    with pytest.raises(NoGoodCheckpoint, match="damaged, or not made by this class"):
        checkpointer(Training(), tmp_path / "own").load()


@pytest.mark.parametrize("inner", ["", "step_4"], ids=["all of them", "one of them"])
def test_another_training_is_gone_on_with_until_there_is_a_checkpoint_of_its_own(tmp_path, inner):
    before, _ = trained(tmp_path / "other")
    training = Training()
    keeper = checkpointer(training, tmp_path / "own", resume_from=tmp_path / "other" / inner)
    assert keeper.load()["step"] == 4
    assert all(torch.equal(a, b) for a, b in zip(training.model.parameters(), before.model.parameters(), strict=True))
    keeper.save(5, {"step": 5})
    keeper.close()
    assert checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "other" / inner).load() == {"step": 5}


def test_what_is_resumed_from_must_be_there(tmp_path):
    with pytest.raises(ValueError, match=r"resume_from=.*none.*there is no such folder"):
        checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "none")
    with pytest.raises(NoGoodCheckpoint, match="not made by this class"):
        (tmp_path / "empty").mkdir()
        checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "empty").load()


def test_outside_muster_a_folder_is_needed():
    with pytest.raises(ValueError, match="outside Muster a Checkpointer needs a folder"):
        Checkpointer(Training().model)


def test_names_do_not_depend_on_what_the_model_is_wrapped_in(tmp_path):
    training, _ = trained(tmp_path)

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    fresh = Training()
    assert Checkpointer(Wrapper(fresh.model), fresh.optimizer, tmp_path).load()["step"] == 4
    assert torch.equal(fresh.model[0].weight, training.model[0].weight)
