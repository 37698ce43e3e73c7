"""Checkpoints of named arrays: whole or not at all, verified, and only what is this training's is removed."""

import numpy as np
import pytest

from muster.training import ArrayCheckpointer, CheckpointFailed, NoGoodCheckpoint


def arrays(value):
    return {"conv/kernel": np.full((2, 3), value, np.float32), "momentum/0": np.arange(4.0) * value}


def test_what_was_saved_is_loaded_with_its_progress(tmp_path):
    first = ArrayCheckpointer(tmp_path / "kept")
    assert first.load() is None
    first.save(5, arrays(2), {"stream": {"epoch": 1, "remaining": [[3, 9]]}})
    first.close()
    found = ArrayCheckpointer(tmp_path / "kept").load()
    assert found.step == 5 and found.progress == {"stream": {"epoch": 1, "remaining": [[3, 9]]}}
    assert found.arrays.keys() == arrays(2).keys()
    assert all(np.array_equal(found.arrays[name], value) for name, value in arrays(2).items())
    assert found.arrays["conv/kernel"].dtype == np.float32


def test_the_last_few_and_the_best_are_kept(tmp_path):
    checkpointer = ArrayCheckpointer(tmp_path, keep_last=2)
    for step, metric in ((1, 0.3), (2, 0.9), (3, 0.5), (4, None), (5, 0.8)):
        checkpointer.save(step, arrays(step), metric=metric)
    assert sorted(path.name for path in tmp_path.glob("step_*")) == ["step_2", "step_4", "step_5"]
    assert [path.parent.name for path in tmp_path.glob("step_*/best")] == ["step_2"]
    checkpointer.close()
    again = ArrayCheckpointer(tmp_path, keep_last=2)
    assert (again.load().step, again.load("best").step) == (5, 2)
    again.close()


def test_without_a_metric_there_is_no_best_and_other_words_are_refused(tmp_path):
    checkpointer = ArrayCheckpointer(tmp_path)
    checkpointer.save(1, arrays(1))
    assert checkpointer.load("best") is None
    with pytest.raises(ValueError, match="which='newest' is last or best"):
        checkpointer.load("newest")
    checkpointer.close()


def test_a_damaged_one_is_passed_over_and_damage_everywhere_is_an_error(tmp_path, caplog):
    checkpointer = ArrayCheckpointer(tmp_path)
    checkpointer.save(1, arrays(1))
    checkpointer.save(2, arrays(2))
    content = bytearray((tmp_path / "step_2" / "arrays.npz").read_bytes())
    content[200] ^= 1
    (tmp_path / "step_2" / "arrays.npz").write_bytes(content)
    assert checkpointer.load().step == 1
    assert "arrays.npz is not what was written" in caplog.text
    (tmp_path / "step_1" / "arrays.npz").unlink()
    with pytest.raises(NoGoodCheckpoint, match="step 1"):
        checkpointer.load()
    checkpointer.close()


def test_ranks_other_than_0_write_nothing(tmp_path):
    ArrayCheckpointer(tmp_path, rank=1).save(1, arrays(1))
    assert list(tmp_path.iterdir()) == []


def test_another_trainings_checkpoint_is_neither_replaced_nor_removed(tmp_path):
    other = ArrayCheckpointer(tmp_path)
    for step in (1, 2, 3):
        other.save(step, arrays(step))
    other.close()
    own = ArrayCheckpointer(tmp_path, keep_last=1)
    with pytest.raises(CheckpointFailed, match="step_2 is there already"):
        own.save(2, arrays(0))
    own.save(4, arrays(4))
    assert sorted(path.name for path in tmp_path.glob("step_*")) == ["step_1", "step_2", "step_3", "step_4"]
    own.close()


def test_another_folder_is_resumed_from_until_there_is_one_of_its_own(tmp_path):
    other = ArrayCheckpointer(tmp_path / "theirs")
    other.save(7, arrays(7), metric=0.9)
    other.close()
    own = ArrayCheckpointer(tmp_path / "ours", resume_from=tmp_path / "theirs")
    assert own.load().step == 7
    own.save(8, arrays(8), metric=0.1)
    assert (tmp_path / "ours" / "step_8" / "best").exists(), "the best of another training says nothing of this one"
    own.close()
    again = ArrayCheckpointer(tmp_path / "ours", resume_from=tmp_path / "theirs")
    assert again.load().step == 8
    again.close()


def test_a_checkpoint_of_an_earlier_attempt_is_found_under_muster(tmp_path, monkeypatch):
    earlier = ArrayCheckpointer(tmp_path / "1")
    earlier.save(3, arrays(3))
    earlier.close()
    monkeypatch.setenv("MUSTER_CHECKPOINT_DIR", str(tmp_path / "2"))
    monkeypatch.setenv("MUSTER_RESUME_DIR", str(tmp_path / "1" / "step_3"))
    retried = ArrayCheckpointer()
    assert retried.load().step == 3
    retried.close()


def test_the_third_failure_in_a_row_is_an_error(tmp_path, monkeypatch):
    checkpointer = ArrayCheckpointer(tmp_path)

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    checkpointer.save(1, arrays(1))
    checkpointer.save(2, arrays(2))
    with pytest.raises(CheckpointFailed, match=r"3 checkpoints in a row .* No space left"):
        checkpointer.save(3, arrays(3))
    assert not list(tmp_path.glob("step_*"))
    checkpointer.close()


def test_what_is_no_number_is_not_the_best(tmp_path):
    checkpointer = ArrayCheckpointer(tmp_path, keep_last=1)
    for step, metric in ((1, float("nan")), (2, 0.3), (3, float("nan"))):
        checkpointer.save(step, arrays(step), metric=metric)
    assert [path.parent.name for path in tmp_path.glob("step_*/best")] == ["step_2"]


@pytest.mark.parametrize("name", ["file", "allow_pickle", "dense/kernel:0"])
def test_an_array_may_have_any_name(tmp_path, name):
    checkpointer = ArrayCheckpointer(tmp_path)
    checkpointer.save(1, {name: np.ones(3)})
    assert checkpointer.load().arrays[name].tolist() == [1, 1, 1]
    checkpointer.close()


def test_numbers_of_numpy_are_taken_as_step_and_metric(tmp_path):
    checkpointer = ArrayCheckpointer(tmp_path)
    checkpointer.save(np.int64(4), arrays(4), metric=np.float32(0.5))
    assert checkpointer.load().step == 4 and (tmp_path / "step_4" / "best").exists()
    checkpointer.close()


@pytest.mark.parametrize(
    ("step", "given", "progress", "said"),
    [
        (1.0, {"w": np.ones(1)}, None, "step=1.0 .float. must be a whole number"),
        (1, [np.ones(1)], None, "must be a mapping of names to NumPy arrays"),
        (1, {"w": np.array([{}])}, None, r"arrays\['w'\] .ndarray. holds objects of Python"),
        (1, {"w": np.ones(1)}, {"loss": np.float32(1)}, "the progress cannot be saved .Object of type float32"),
    ],
)
def test_what_cannot_be_saved_is_refused_at_the_call(tmp_path, step, given, progress, said):
    checkpointer = ArrayCheckpointer(tmp_path)
    with pytest.raises(TypeError, match=said):
        checkpointer.save(step, given, progress)
    checkpointer.close()


def test_of_two_on_one_folder_the_first_is_told_so(tmp_path):
    first, second = ArrayCheckpointer(tmp_path), ArrayCheckpointer(tmp_path)
    with pytest.raises(CheckpointFailed, match="another checkpointer of this script, made later"):
        first.save(1, arrays(1))
    second.save(1, arrays(1))
    second.close()
    first.close()
