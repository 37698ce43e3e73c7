"""Files into a folder of this machine: whole or not at all, and on from where an earlier try stopped."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from muster.client.transfer.fetching import fetch_all
from muster.client.transfer.local import PARTIAL, find
from muster.client.transfer.plan import Copy
from muster.errors import Conflict, JobError, NotFound
from muster.host.locks import FileLock
from muster.storage.connectors.base import BLOCK_BYTES, TransferError
from muster.storage.connectors.files import Folder
from muster.wire.data.access import FileEntry


class Breaking(Folder):
    """A folder that stops answering after some reads."""

    def __init__(self, path: Path, reads: int) -> None:
        super().__init__(str(path))
        self.left = reads
        self.done: list[tuple[str, int]] = []
        self.lock = threading.Lock()

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        with self.lock:
            if not self.left:
                raise TransferError("data_unavailable", "the connection broke")
            self.left -= 1
            self.done.append((entry.path, offset))
        super().read(entry, offset, view)


def make(folder: Path) -> list[Copy]:
    (folder / "deep").mkdir(parents=True)
    for number in range(20):
        (folder / "deep" / str(number)).write_bytes(os.urandom(100 + number))
    (folder / "large").write_bytes(os.urandom(3 * BLOCK_BYTES + 17))
    return [Copy(entry, entry.path) for entry in Folder(str(folder)).listing()]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_an_interrupted_copy_had_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    copies = make(tmp_path / "source")
    target = tmp_path / "target"
    broken = Breaking(tmp_path / "source", reads=9)
    with pytest.raises(TransferError, match="broke"):
        fetch_all(broken, "source", copies, target, lambda _: None)
    assert {path.name[: len(PARTIAL)] for path in target.iterdir()} == {PARTIAL}, "nothing appears before all is there"
    moved: list[int] = []
    again = Breaking(tmp_path / "source", reads=1000)
    fetch_all(again, "source", copies, target, moved.append)
    assert not set(broken.done) & set(again.done)
    assert len(broken.done) + len(again.done) == 24
    assert sum(moved) == sum(copy.entry.size for copy in copies)
    assert content(target) == content(tmp_path / "source")


def test_a_source_that_changed_meanwhile_is_fetched_anew(tmp_path: Path) -> None:
    copies = make(tmp_path / "source")
    broken = Breaking(tmp_path / "source", reads=9)
    with pytest.raises(TransferError):
        fetch_all(broken, "source", copies, tmp_path / "target", lambda _: None)
    name = broken.done[0][0]
    (tmp_path / "source" / name).write_bytes(b"another content")
    copies = [Copy(entry, entry.path) for entry in Folder(str(tmp_path / "source")).listing()]
    fetch_all(Folder(str(tmp_path / "source")), "source", copies, tmp_path / "target", lambda _: None)
    assert content(tmp_path / "target") == content(tmp_path / "source")


def test_files_have_the_rights_of_new_files(tmp_path: Path) -> None:
    copies = make(tmp_path / "source")
    fetch_all(Folder(str(tmp_path / "source")), "source", copies, tmp_path / "target", lambda _: None)
    (tmp_path / "new").write_text("")
    modes = {path.stat().st_mode for path in (tmp_path / "target").rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "new").stat().st_mode}


def test_the_same_copy_twice_at_a_time_is_refused(tmp_path: Path) -> None:
    copies = make(tmp_path / "source")
    with pytest.raises(TransferError):
        fetch_all(Breaking(tmp_path / "source", 1), "source", copies, tmp_path / "target", lambda _: None)
    partial = next((tmp_path / "target").iterdir())
    with FileLock(partial / "lock").acquire(), pytest.raises(Conflict, match="under way already"):
        fetch_all(Folder(str(tmp_path / "source")), "source", copies, tmp_path / "target", lambda _: None)


def test_ignore_files_are_kept_to_and_named(tmp_path: Path) -> None:
    for name in ("a.txt", "b.tmp", "sub/c.tmp", "cache/d.txt", ".git/config", f"{PARTIAL}0/journal.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.tmp\ncache/\n")
    os.mkfifo(tmp_path / "pipe")
    found = find(tmp_path, use_ignore_files=True)
    assert [entry.path for entry in found.files] == [".gitignore", "a.txt"]
    assert found.ignored == [".git/", "b.tmp", "cache/", "sub/c.tmp"]
    assert found.left_out == ["pipe"]
    every = {entry.path for entry in find(tmp_path, use_ignore_files=False).files}
    assert {"b.tmp", "sub/c.tmp", "cache/d.txt", ".git/config"} <= every


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file or folder"):
        find(tmp_path / "nothing", use_ignore_files=True)


class Lying(Folder):
    """A datastore that lists names of its own choice."""

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        view[:] = bytes(len(view))


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "a/./b", "a//b", "..", "a\0b"])
def test_no_name_that_a_datastore_lists_leaves_the_target(tmp_path: Path, name: str) -> None:
    (tmp_path / "source").mkdir()
    copies = [Copy(FileEntry("good", 1), "good"), Copy(FileEntry(name, 4), name)]
    with pytest.raises(JobError, match="outside"):
        fetch_all(Lying(str(tmp_path / "source")), "source", copies, tmp_path / "in" / "target", lambda _: None)
    assert not [path for path in tmp_path.rglob("*") if path.name == "evil"]
    assert not Path("/tmp/evil").exists()
