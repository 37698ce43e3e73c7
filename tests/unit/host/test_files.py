"""Files that are whole or not there; paths that stay in their folder; folders that go."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.host import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_file(path, "old")
    with files.replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_private_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with files.replacing(path, mode=files.PRIVATE) as file:
        (part,) = tmp_path.iterdir()
        assert part.stat().st_mode & 0o777 == 0o600
        file.write(b"secret")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_mode_holds_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        files.write_file(tmp_path / "usual", b"")
        files.write_file(tmp_path / "given", b"", mode=0o644)
    finally:
        os.umask(old)
    assert (tmp_path / "usual").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o644


def test_long_names_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    files.write_file(path, "text", durable=True)
    assert path.read_text() == "text"


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    files.write_json(path, {"a": [1]}, indent=2, durable=True)
    assert path.read_text() == '{\n  "a": [\n    1\n  ]\n}\n'
    assert files.read_json(path) == {"a": [1]}
    path.write_text('{"a": ')
    assert files.read_json(path) is None
    assert files.read_json(tmp_path / "missing") is None


def test_one_of_many_creates_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    won: list[int] = []

    def create(number: int) -> None:
        if files.create_file(path, str(number), mode=files.PRIVATE):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_text()] == [str(number) for number in won]
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("path", ["a", "a/b.txt", "...", "a/.b", "~", "a\\b", "ä/ö"])
def test_safe_paths(path: str) -> None:
    assert files.is_safe_path(path)
    assert files.safe_path(path) == path


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "../a", "a/..", "a\0b"])
def test_unsafe_paths(path: str) -> None:
    assert not files.is_safe_path(path)
    with pytest.raises(JobError, match="leaves its folder"):
        files.safe_path(path)


def test_backslashes_are_refused_where_they_may_be_slashes() -> None:
    assert not files.is_safe_path("a\\..\\b", backslashes=False)
    assert files.is_safe_path("a/b", backslashes=False)


@given(st.text(alphabet="a./\\\0~", max_size=12))
def test_a_safe_path_stays_in_its_folder(path: str) -> None:
    if files.is_safe_path(path):
        joined = os.path.normpath(f"/root/folder/{path}")
        assert joined == f"/root/folder/{path}"
        assert not files.leaves_folder(path) or path.startswith("~")


def test_a_name_is_one_part() -> None:
    assert files.is_safe_name("run-1")
    assert not any(files.is_safe_name(name) for name in ("", "a/b", ".", "..", "a\0"))


@pytest.mark.parametrize(
    ("path", "leaves"),
    [("a/../b", False), ("a/b", False), ("..", True), ("a/../../b", True), ("/a", True), ("~/a", True), (".", False)],
)
def test_paths_of_people(path: str, leaves: bool) -> None:
    assert files.leaves_folder(path) is leaves


def test_links_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    (folder / "in").symlink_to(folder)
    assert files.is_below(folder / "in" / "file", folder)
    assert not files.is_below(folder / "out" / "file", folder)


def test_folders_that_may_not_be_written_to_go_too(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed" / "inner" / "file").touch()
    (top / "link").symlink_to(tmp_path)
    for folder in (top / "closed" / "inner", top / "closed", top):
        folder.chmod(0o000)
    files.remove_tree(top)
    assert names(tmp_path) == []


def test_files_links_and_nothing_can_be_removed_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("file", "link", "missing"):
        files.remove_tree(tmp_path / name)
    assert names(tmp_path) == ["kept"]


def test_a_folder_is_removed_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    files.remove_aside(tmp_path / "folder", tmp_path / "gone")
    files.remove_aside(tmp_path / "folder", tmp_path / "gone")
    assert names(tmp_path) == []


def test_a_file_with_two_names_takes_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one").write_bytes(bytes(100_000))
    once = files.disk_usage(tmp_path)
    assert once >= 100_000
    (tmp_path / "two").hardlink_to(tmp_path / "folder" / "one")
    assert files.disk_usage(tmp_path) == once
    assert files.disk_usage(tmp_path / "missing") == 0
