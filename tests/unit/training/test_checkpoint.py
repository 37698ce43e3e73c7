"""Checkpoints of one process: exact, whole, verified, and what happens when they are not."""

import errno
import json
import os
import random
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.unit.training.test_folders import another_process
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from muster.training import Checkpointer, CheckpointFailed, NoGoodCheckpoint, integrity
from muster.training.state import TrainingState

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


def scored(folder: Path, *metrics: float | None, **more) -> Checkpointer:
    """Checkpoints 1, 2, … with these metrics; it is left open."""
    keeper = checkpointer(Training(), folder, **more)
    for step, metric in enumerate(metrics, 1):
        keeper.save(step, {"step": step}, metric=metric)
    keeper.wait()
    return keeper


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


@pytest.fixture
def slow_disk(monkeypatch):
    """Nothing is synced before the event is set."""
    written, sync = threading.Event(), os.fsync

    def fsync(descriptor):
        assert written.wait(30)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    yield written
    written.set()


def test_progress_is_that_of_the_moment_too(tmp_path, slow_disk):
    training = Training()
    keeper = checkpointer(training, tmp_path)
    order, seen = torch.zeros(3), {"epochs": [1]}
    keeper.save(1, {"order": order, "seen": seen})
    order.fill_(9)
    seen["epochs"].append(2)
    training.optimizer.param_groups[0]["lr"] = 7.0
    slow_disk.set()
    keeper.close()
    fresh = Training()
    progress = checkpointer(fresh, tmp_path).load()
    assert (progress["order"].tolist(), progress["seen"]) == ([0, 0, 0], {"epochs": [1]})
    assert fresh.optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    "value", [numpy.float64(0.5), numpy.arange(3), Path("here"), [{"deep": numpy.int64(1)}]], ids=repr
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, value):
    keeper = checkpointer(Training(), tmp_path)
    with pytest.raises(TypeError, match=r"progress\['odd'\] \(\w+\) could not be loaded.*Allowed are tensors, numbers"):
        keeper.save(1, {"step": 1, "odd": value})
    keeper.close()
    assert steps_in(tmp_path) == []


def test_what_becomes_impossible_to_load_is_noticed_too(tmp_path):
    training = Training()
    keeper = checkpointer(training, tmp_path)
    keeper.save(1, {"top1": None})
    with pytest.raises(TypeError, match=r"progress\['top1'\] \(float64\)"):
        keeper.save(2, {"top1": numpy.float64(0.5)})
    losses = []
    keeper.save(2, {"losses": {"all": losses}})
    losses.append(numpy.float64(0.5))
    with pytest.raises(TypeError, match=r"progress\['losses'\]"):
        keeper.save(3, {"losses": {"all": losses}})
    training.optimizer.param_groups[0]["lr"] = numpy.float64(0.5)
    with pytest.raises(TypeError, match="'lr' of the optimizer"):
        keeper.save(4)


def test_a_name_that_two_tensors_would_have_is_refused(tmp_path):
    model = nn.Linear(2, 2)
    model.module = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"two tensors would both be called 'weight'.*called `module` another name"):
        Checkpointer(model, None, tmp_path)


def test_a_loss_with_its_graph_is_saved_as_a_number(tmp_path):
    training = Training()
    keeper = checkpointer(training, tmp_path)
    keeper.save(1, {"loss": training.model(torch.ones(2, 4)).sum(), "ints": {1, 2}, "bytes": b"b"})
    keeper.close()
    progress = checkpointer(training, tmp_path).load()
    assert not progress["loss"].requires_grad and (progress["ints"], progress["bytes"]) == ({1, 2}, b"b")


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


def test_who_goes_on_from_the_best_leaves_the_line_behind_it(tmp_path):
    scored(tmp_path, 0.1, 0.9, 0.3, 0.3, 0.2, keep_last=2).close()
    keeper = checkpointer(Training(), tmp_path, keep_last=2)
    assert keeper.load("best") == {"step": 2}
    keeper.save(3, {"step": "new"}, metric=0.1)
    keeper.close()
    assert steps_in(tmp_path) == [2, 3]
    assert checkpointer(Training(), tmp_path).load() == {"step": "new"}


def test_a_damaged_one_with_a_larger_number_does_not_outlive_the_new(tmp_path):
    trained(tmp_path, steps=2)
    (tmp_path / "step_2").rename(tmp_path / "step_9")
    cut(tmp_path / "step_9")
    keeper = checkpointer(Training(), tmp_path, keep_last=1)
    assert keeper.load() == {"step": 1}
    keeper.save(2)
    keeper.close()
    assert steps_in(tmp_path) == [2]


def test_checkpoints_that_a_training_did_not_load_are_not_removed(tmp_path, caplog):
    trained(tmp_path, steps=9, keep_last=3)
    keeper = checkpointer(Training(), tmp_path, keep_last=1)
    for step in (1, 2):
        keeper.save(step, {"step": "new"})
    keeper.close()
    assert steps_in(tmp_path) == [2, 7, 8, 9]
    assert caplog.text.count("did not load (the newest: step_9)") == 1


def test_a_checkpoint_that_a_training_did_not_load_is_not_replaced(tmp_path):
    trained(tmp_path, steps=2)
    keeper = checkpointer(Training(), tmp_path)
    with pytest.raises(
        CheckpointFailed, match=r"step_2 is there already, and this training did not load it\s+Call load"
    ):
        keeper.save(2, {"step": "new"})
    keeper.close()
    assert checkpointer(Training(), tmp_path).load() == {"step": 2}


@pytest.mark.parametrize("metric", [float("nan"), None])
def test_what_is_no_number_is_not_the_best(tmp_path, metric):
    scored(tmp_path, metric, 0.9, metric, 0.5, keep_last=1).close()
    assert steps_in(tmp_path) == [2, 4]


def test_without_a_metric_there_is_no_best(tmp_path):
    trained(tmp_path / "other")
    assert checkpointer(Training(), tmp_path / "other").load("best") is None
    assert checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "other").load("best") is None


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
        json.dumps({**json.loads((folder / "rank_00000.json").read_text()), "world_size": 2})
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
    for name in (".step_7.tmp", ".replaced_1.tmp", ".removed_3.tmp"):
        shutil.copytree(tmp_path / "step_1", tmp_path / name)
    keeper = checkpointer(Training(), tmp_path)
    keeper.load()
    keeper.save(2)
    keeper.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step_1", "step_2"]


def test_what_a_killed_training_was_replacing_is_taken_back(tmp_path):
    trained(tmp_path, steps=2)
    (tmp_path / "step_2").rename(tmp_path / ".replaced_2.tmp")
    assert checkpointer(Training(), tmp_path).load() == {"step": 2}


def test_saving_the_same_step_again_replaces_it(tmp_path):
    training, keeper = trained(tmp_path, steps=1)
    keeper.save(1, {"step": "again"})
    keeper.close()
    assert checkpointer(training, tmp_path).load()["step"] == "again"
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.fixture
def full_disk(monkeypatch):
    """Syncing fails as it does where no space is left, while `on` is set."""

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
    assert steps_in(tmp_path) == [1, 2] and not list(tmp_path.glob(".*.tmp"))
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


def test_a_better_one_that_was_not_written_does_not_cost_the_best(tmp_path, full_disk):
    keeper = scored(tmp_path, 0.5, keep_last=1)
    full_disk.on = True
    keeper.save(2, metric=0.9)
    keeper.wait()
    full_disk.on = False
    keeper.save(3, {"step": 3}, metric=0.4)
    keeper.close()
    assert steps_in(tmp_path) == [1, 3]
    assert checkpointer(Training(), tmp_path).load("best") == {"step": 1}


@pytest.mark.parametrize(
    ("error", "told"), [(OSError("stale"), "No space left"), (ValueError("odd"), "ValueError: odd")]
)
def test_whatever_ends_the_writing_is_told(tmp_path, full_disk, monkeypatch, error, told):
    def disk_usage(folder):
        raise error

    _, keeper = trained(tmp_path, steps=1)
    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    full_disk.on = True
    keeper.save(2)
    with pytest.raises(CheckpointFailed, match=f"the last checkpoint could not be written.*{told}"):
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


@pytest.mark.parametrize("inner", ["", "step_1"], ids=["all of them", "one of them"])
def test_the_best_of_another_training_is_not_the_best_of_this_one(tmp_path, inner):
    scored(tmp_path / "other", 0.9).close()
    keeper = checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "other" / inner, keep_last=1)
    assert keeper.load("best") == {"step": 1}
    for step, metric in ((2, 0.8), (3, 0.5)):
        keeper.save(step, {"step": step}, metric=metric)
    keeper.close()
    assert steps_in(tmp_path / "own") == [2, 3]
    assert keeper.load("best") == {"step": 2}


def test_another_training_does_not_count_where_there_are_own_checkpoints(tmp_path):
    trained(tmp_path / "other")
    keeper = checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "other" / "step_4")
    keeper.load()
    keeper.save(1, {"step": "own"})
    assert keeper.load() == {"step": "own"}


def test_the_best_of_an_earlier_attempt_stays_the_best_and_is_missed(tmp_path, monkeypatch):
    scored(tmp_path / "before", 0.1, 0.9, 0.5).close()
    monkeypatch.setenv("MUSTER_CHECKPOINT_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("MUSTER_RESUME_DIR", str(tmp_path / "before" / "step_3"))
    keeper = checkpointer(Training(), None)
    assert keeper.load() == {"step": 3}
    keeper.save(4, metric=0.7)
    keeper.close()
    assert not (tmp_path / "own" / "step_4" / "best").exists()
    with pytest.raises(NoGoodCheckpoint, match=r"the best checkpoint \(step 2\) is not here[^$]*checkpoints/step_2"):
        keeper.load("best")


def test_a_folder_that_another_training_has_is_refused(tmp_path):
    with another_process(tmp_path) as answer:
        assert answer == "held"
        with pytest.raises(CheckpointFailed, match=r"cannot be used: .*another training[^$]*its own folder, or"):
            checkpointer(Training(), tmp_path)
    _, keeper = trained(tmp_path)
    keeper.save(5)
    with another_process(tmp_path) as answer:
        assert answer == "refused"
    keeper.close()
    with another_process(tmp_path) as answer:
        assert answer == "held"
        (tmp_path / ".step_6.tmp").mkdir()
        keeper.save(6)
        with pytest.raises(CheckpointFailed, match="InUse: another training"):
            keeper.close()
        assert (tmp_path / ".step_6.tmp").exists()


def test_what_is_resumed_from_must_be_there(tmp_path):
    with pytest.raises(ValueError, match=r"resume_from=.*none.*there is no such folder"):
        checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "none")
    with pytest.raises(NoGoodCheckpoint, match="not made by this class"):
        (tmp_path / "empty").mkdir()
        checkpointer(Training(), tmp_path / "own", resume_from=tmp_path / "empty").load()


def test_outside_muster_a_folder_is_needed():
    with pytest.raises(ValueError, match="outside Muster checkpoints need a folder"):
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


@pytest.mark.parametrize(("option", "place"), [("fused", "meta"), ("capturable", "meta"), ("foreach", "cpu")])
def test_steps_are_counted_where_the_optimizer_wants_it(option, place):
    model = nn.ParameterDict({name: torch.zeros(shape, device="meta") for name, shape in (("a", (2, 3)), ("b", ()))})
    optimizer = torch.optim.Adam(model.values())
    state = TrainingState(model, optimizer)
    optimizer.param_groups[0][option] = True

    def stored(*size):
        return SimpleNamespace(size=torch.Size(size), properties=SimpleNamespace(dtype=torch.float32))

    state.make_room({"optimizer.a.step": stored(), "optimizer.b.step": stored(), "optimizer.a.row_var": stored(2, 1)})
    state.take_plain(state.plain())
    assert [optimizer.state[parameter]["step"].device.type for parameter in model.values()] == [place, place]
    assert optimizer.state[model["a"]]["row_var"].device.type == "meta"


@pytest.mark.parametrize("name", ["exact_checkpoints", '"checkpoints"'])
def test_the_examples_of_the_document_resume_from_what_they_saved(tmp_path, monkeypatch, name):
    document = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if name in block]
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    again: dict = {}
    exec(example, again)
    (folder,) = tmp_path.iterdir()
    assert again["progress"]["step"] == max(steps_in(folder)) > 0


class TestSeveral:
    """A generator, a critic and an average of the generator's weights; a scheduler and a scaler."""

    def make(self, folder):
        torch.manual_seed(0)
        nets = {"generator": torch.nn.Linear(3, 3), "critic": torch.nn.Linear(3, 1)}
        average = AveragedModel(nets["generator"], multi_avg_fn=get_ema_multi_avg_fn(0.9))
        optimizers = {
            "generator": torch.optim.Adam(nets["generator"].parameters(), lr=0.1),
            "critic": torch.optim.SGD(nets["critic"].parameters(), lr=0.1, momentum=0.9),
        }
        scheduler = torch.optim.lr_scheduler.StepLR(optimizers["generator"], step_size=2)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        keeper = Checkpointer(
            {**nets, "average": average}, optimizers, folder, also={"scheduler": scheduler, "scaler": scaler}
        )
        return nets, average, optimizers, scheduler, scaler, keeper

    def train(self, made, steps):
        nets, average, optimizers, scheduler, scaler, _ = made
        for step in steps:
            for name, net in nets.items():
                optimizers[name].zero_grad()
                scaler.scale(net(torch.full((2, 3), float(step))).square().mean()).backward()
                scaler.step(optimizers[name])
            scaler.update()
            average.update_parameters(nets["generator"])
            scheduler.step()

    def test_all_of_them_go_on_exactly(self, tmp_path):
        whole = self.make(tmp_path / "whole")
        self.train(whole, range(1, 7))
        first = self.make(tmp_path / "kept")
        self.train(first, range(1, 4))
        first[-1].save(3, {"step": 3})
        first[-1].close()
        second = self.make(tmp_path / "kept")
        assert second[-1].load() == {"step": 3}
        self.train(second, range(4, 7))
        for name in ("generator", "critic"):
            for a, b in zip(whole[0][name].parameters(), second[0][name].parameters(), strict=True):
                assert torch.equal(a, b)
        assert all(torch.equal(a, b) for a, b in zip(whole[1].parameters(), second[1].parameters(), strict=True))
        assert whole[1].n_averaged == second[1].n_averaged == 6
        assert whole[3].state_dict() == second[3].state_dict() and whole[4].state_dict() == second[4].state_dict()

    def test_what_the_checkpoint_lacks_is_named(self, tmp_path):
        keeper = Checkpointer(torch.nn.Linear(2, 2), None, tmp_path)
        keeper.save(1)
        keeper.close()
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
        with pytest.raises(NoGoodCheckpoint, match="no state of 'scheduler'"):
            Checkpointer(net, None, tmp_path, also={"scheduler": scheduler}).load()

    def test_mistakes_are_named_at_the_call(self, tmp_path):
        net, other = torch.nn.Linear(2, 2), torch.nn.Linear(5, 2)
        with pytest.raises(ValueError, match=r"\(SGD\) has a parameter of shape \(2, 5\) that is in no model"):
            Checkpointer(net, torch.optim.SGD(other.parameters(), lr=0.1), tmp_path)
        both = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name in ("one", "two")}
        with pytest.raises(ValueError, match="'two' has weight, which another optimizer has too"):
            Checkpointer(net, both, tmp_path)
        with pytest.raises(TypeError, match=r"also\['rate'\] \(float\) has no state_dict"):
            Checkpointer(net, None, tmp_path, also={"rate": 0.1})
        with pytest.raises(TypeError, match=r"also\['ema'\] is a model"):
            Checkpointer(net, None, tmp_path, also={"ema": other})
        for wrong in ("checkpoints", net.parameters(), [net]):
            with pytest.raises(TypeError, match=f"optimizer is {type(wrong).__name__}, not a torch Optimizer"):
                Checkpointer(net, wrong, tmp_path)
        with pytest.raises(TypeError, match=r"model\['weight'\] is Tensor, not a torch Module"):
            Checkpointer(net.state_dict(), None, tmp_path)


def test_a_folder_that_is_not_used_under_muster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MUSTER_CHECKPOINT_DIR", str(tmp_path / "own"))
    Checkpointer(nn.Linear(1, 1), folder=tmp_path / "mine").close()
    assert f"{tmp_path / 'mine'} is not used" in caplog.text
    caplog.clear()
    Checkpointer(nn.Linear(1, 1)).close()
    assert not caplog.text


def test_what_to_load_is_the_last_or_the_best(tmp_path):
    keeper = checkpointer(Training(), tmp_path)
    with pytest.raises(ValueError, match=r"which='newest' is last or best"):
        keeper.load("newest")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"also": [1]}, r"also is list; give a dict, such as \{\"scheduler\": scheduler\}"),
        ({"keep_last": "3"}, "keep_last='3' must be a whole number, 1 or more"),
        ({"keep_last": 0}, "keep_last=0 must be a whole number, 1 or more"),
        ({"best": "top1"}, "best='top1' must be max or min"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Checkpointer(nn.Linear(1, 1), None, tmp_path, **options)


def test_step_and_metric_may_be_numbers_of_numpy_and_of_pytorch(tmp_path):
    keeper = checkpointer(Training(), tmp_path)
    keeper.save(numpy.int64(4), metric=numpy.float32(0.5))
    keeper.save(torch.tensor(5), metric=torch.tensor(0.25))
    keeper.close()
    assert sorted(path.name for path in tmp_path.glob("step_*")) == ["step_4", "step_5"]
    assert (tmp_path / "step_4" / "best").exists()


@pytest.mark.parametrize(
    ("step", "progress", "metric", "said"),
    [
        (5.0, None, None, "step=5.0 .float. must be a whole number"),
        ("5", None, None, "step='5' .str. must be a whole number"),
        (5, 7, None, "progress is int; give a dict"),
        (5, None, "good", "metric='good' .str. must be a single number"),
    ],
)
def test_what_would_be_lost_is_refused_at_the_call(tmp_path, step, progress, metric, said):
    keeper = checkpointer(Training(), tmp_path)
    with pytest.raises(TypeError, match=said):
        keeper.save(step, progress, metric=metric)
    with pytest.raises(ValueError, match="step=-1 must not be negative"):
        keeper.save(-1)
    keeper.close()
    assert not list(tmp_path.glob("*step_*"))


def test_of_two_on_one_folder_the_first_is_told_so(tmp_path):
    first, second = Training(), Training()
    kept = Checkpointer(first.model, first.optimizer, tmp_path)
    taken_over = Checkpointer(second.model, second.optimizer, tmp_path)
    with pytest.raises(CheckpointFailed, match="another checkpointer of this script, made later"):
        kept.save(1)
    taken_over.save(1)
    taken_over.close()
    kept.close()
