"""The folders of checkpoints: none is seen in part, whatever is killed, and one training at a time has them."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.training.folders import CheckpointFolder, InUse, checkpoints_in

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("held", flush=True)
        sys.stdin.read()
    except BlockingIOError:
        print("refused")
"""


@contextmanager
def another_process(folder: Path) -> Iterator[str]:
    """One that wants the folder for itself; says whether it has it."""
    command = [sys.executable, "-c", HOLDER, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()


def publish(folder: CheckpointFolder, step: int, content: str = "") -> None:
    folder.stage(step)
    (folder.staged(step) / "file").write_text(content)
    folder.publish(step)


def contents(path: Path) -> dict[int, str]:
    return {step: (place / "file").read_text() for step, place in checkpoints_in(path)}


@pytest.mark.parametrize(
    ("newest", "best", "kept"), [(5, None, [5, 4]), (5, 2, [5, 4, 2]), (3, 2, [3, 2]), (3, 1, [3, 2, 1]), (1, 1, [1])]
)
def test_larger_numbers_than_the_newest_go_before_the_newest(tmp_path, newest, best, kept):
    folder = CheckpointFolder(tmp_path)
    for step in range(1, 6):
        publish(folder, step)
    folder.prune(newest, 2, best)
    assert list(contents(tmp_path)) == kept and not list(tmp_path.glob(".*.tmp"))


def test_what_is_pruned_loses_its_name_before_its_files(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    publish(folder, 1)
    publish(folder, 2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda place, ignore_errors: None)
        folder.prune(2, 1, None)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".lock", ".removed_1.tmp", "step_2"]
    folder.tidy()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".lock", "step_2"]


@pytest.fixture
def broken_rename(tmp_path, monkeypatch):
    """A checkpoint that was set aside for another one, which could not take its place."""
    folder, rename = CheckpointFolder(tmp_path), os.rename
    publish(folder, 1, "old")

    def fails(source, target):
        if Path(target).name == "step_1":
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fails)
        with pytest.raises(OSError, match="Input/output error"):
            publish(folder, 1, "new")
    assert contents(tmp_path) == {}
    return folder


def test_what_could_not_be_replaced_is_taken_back(broken_rename):
    broken_rename.tidy()
    assert contents(broken_rename.path) == {1: "old"} and not list(broken_rename.path.glob(".*.tmp"))


def test_what_a_killed_training_was_replacing_is_taken_back_by_the_next(broken_rename):
    CheckpointFolder(broken_rename.path).claim()
    assert contents(broken_rename.path) == {1: "old"}


def test_what_was_replaced_goes(tmp_path):
    folder = CheckpointFolder(tmp_path)
    publish(folder, 1, "old")
    publish(folder, 1, "new")
    assert contents(tmp_path) == {1: "new"} and not list(tmp_path.glob(".*.tmp"))


def test_one_process_at_a_time_has_a_folder(tmp_path):
    folder = CheckpointFolder(tmp_path)
    with another_process(tmp_path) as answer:
        assert answer == "held"
        (tmp_path / ".step_1.tmp").mkdir()
        for act in (folder.claim, folder.tidy, lambda: folder.stage(2)):
            with pytest.raises(InUse, match="another training writes its checkpoints there"):
                act()
        assert (tmp_path / ".step_1.tmp").exists()
    folder.claim()
    folder.claim()
    with another_process(tmp_path) as answer:
        assert answer == "refused"
    folder.release()
    with another_process(tmp_path) as answer:
        assert answer == "held"


def test_in_one_process_the_next_can_have_it_before_the_last_is_gone(tmp_path):
    folders = [CheckpointFolder(tmp_path) for _ in range(2)]
    for folder in folders:
        folder.claim()
    del folder, folders[0]
    gc.collect()
    # Locks are of the process: the one that went took that of the other along, which takes it again with its next save.
    folders[0].claim()
    with another_process(tmp_path) as answer:
        assert answer == "refused"
    folders.clear()
    gc.collect()
    with another_process(tmp_path) as answer:
        assert answer == "held"


def test_a_worker_that_outlives_the_training_does_not_hold_the_folder(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.claim()
    # As a forked one it has the open file too.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[folder._descriptor]) as worker:
        folder.release()
        with another_process(tmp_path) as answer:
            assert answer == "held"
        worker.stdin.close()


def test_where_there_are_no_locks_one_goes_on_without(tmp_path, monkeypatch):
    def lockf(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", lockf)
    CheckpointFolder(tmp_path).claim()
