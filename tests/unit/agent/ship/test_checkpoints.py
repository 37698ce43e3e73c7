"""What counts as a checkpoint on the node, and what is not one yet."""

import time
from pathlib import Path

import pytest

from muster.agent.ship.checkpoints import is_finished, look
from muster.agent.ship.renames import Renames
from muster.runtime.checkpoints import publish

LATER = 3600.0


@pytest.mark.parametrize(("name", "finished"), [("step_1", True), ("a.pt", True), (".a", False), ("a.pt.tmp", False)])
def test_the_name_says_whether_it_is_finished(name, finished):
    assert is_finished(name) is finished


def test_a_renamed_file_is_taken_at_once_and_only_once(tmp_path: Path):
    (tmp_path / "a.pt.tmp").write_text("1")
    (tmp_path / "a.pt.tmp").rename(tmp_path / "a.pt")
    (entry,) = look(tmp_path, {"a.pt"}, {}, time.time())
    assert entry.settled
    assert look(tmp_path, {"a.pt"}, {"a.pt": entry.signature}, time.time()) == []


def test_what_was_written_in_place_is_left_alone_first(tmp_path: Path):
    (tmp_path / "a.pt").write_text("1")
    assert [entry.settled for entry in look(tmp_path, set(), {}, time.time())] == [False]
    assert [entry.settled for entry in look(tmp_path, set(), {}, time.time() + LATER)] == [True]


def test_a_changed_checkpoint_is_another_one(tmp_path: Path):
    folder = tmp_path / "step"
    folder.mkdir()
    (folder / "weights").write_text("1")
    (first,) = look(tmp_path, {"step"}, {}, time.time())
    (folder / "weights").write_text("22")
    (second,) = look(tmp_path, {"step"}, {"step": first.signature}, time.time())
    assert second.signature != first.signature


def test_no_folder_holds_no_checkpoints(tmp_path: Path):
    assert look(tmp_path / "none", set(), {}, time.time()) == []


def test_renames_are_seen_and_writes_are_not(tmp_path: Path):
    renames = Renames()
    names = renames.watch(tmp_path)
    (tmp_path / "direct").write_text("x")
    (tmp_path / "file.tmp").write_text("x")
    (tmp_path / "file.tmp").rename(tmp_path / "file")
    (tmp_path / ".folder").mkdir()
    (tmp_path / ".folder").rename(tmp_path / "folder")
    renames.collect()
    assert names == {"file", "folder"}
    renames.close()


def test_publishing_renames_what_lies_there_and_copies_the_rest(tmp_path: Path):
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "model"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("1")
    assert publish(folder, elsewhere, step=7) == folder / "step_7"
    assert (folder / "step_7" / "weights").read_text() == "1" and elsewhere.exists()
    (folder / ".state.pt").write_text("2")
    assert publish(folder, folder / ".state.pt") == folder / "state.pt"
    assert sorted(path.name for path in folder.iterdir()) == ["state.pt", "step_7"]


def test_publishing_a_name_again_replaces_it(tmp_path: Path):
    for value in ("1", "2"):
        (tmp_path / "last.tmp").mkdir()
        (tmp_path / "last.tmp" / "weights").write_text(value)
        publish(tmp_path, tmp_path / "last.tmp")
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert (tmp_path / "last" / "weights").read_text() == "2"


def test_publishing_what_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        publish(tmp_path, tmp_path / "none")
    (tmp_path / ".tmp").write_text("")
    with pytest.raises(ValueError, match="give a step"):
        publish(tmp_path, tmp_path / ".tmp")
