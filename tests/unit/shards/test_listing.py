"""Samples of a folder of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError, NotFound
from muster.shards.listing import listed


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_files_of_one_name_are_one_sample_and_folders_are_classes(tmp_path: Path) -> None:
    fill(tmp_path, "b/2.jpg", "b/1.JPEG", "a/deep/x.v1.png", "a/deep/x.v1.json", "a/README", "a/.hidden", ".git/x.jpg")
    names = listed(tmp_path)
    assert [names.key(n) for n in range(len(names))] == ["a/README", "a/deep/x.v1", "b/1", "b/2"]
    assert [names.label(n) for n in range(len(names))] == [0, 0, 1, 1]
    assert names.classes == ("a", "b")
    assert [(part.field, part.path) for part in names.parts(1)] == [
        ("json", "a/deep/x.v1.json"),
        ("png", "a/deep/x.v1.png"),
    ]
    assert [(part.field, part.path) for part in names.parts(0)] == [("bin", "a/README")]
    assert names.parts(2)[0].field == "jpg"


def test_files_beside_the_folders_mean_that_folders_are_no_classes(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg", "a/2.jpg")
    assert listed(tmp_path).classes == () and listed(tmp_path).label(0) is None


def test_names_that_are_no_text_and_links_in_a_circle(tmp_path: Path) -> None:
    strange = Path(str(tmp_path).encode().decode()) / "a"
    strange.mkdir()
    (tmp_path / "a" / b"caf\xe9.jpg".decode("utf-8", "surrogateescape")).write_text("x")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    names = listed(tmp_path)
    assert (tmp_path / names.parts(len(names) - 1)[0].path).read_text() == "x"
    assert len(names) < 5


def test_two_files_for_one_part_are_named(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/1.jpeg")
    with pytest.raises(
        JobError, match=r"a/1 stands for several files that are the same part of a sample \(jpeg, jpg\)"
    ):
        listed(tmp_path)


def test_nothing_to_list(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="holds no files"):
        listed(tmp_path)
    with pytest.raises(NotFound, match="there is no folder"):
        listed(tmp_path / "no")


def test_names_take_little_more_than_their_bytes(tmp_path: Path) -> None:
    fill(tmp_path, *(f"class/image_{number:05d}.jpg" for number in range(2000)))
    names = listed(tmp_path)
    assert names.memory <= 2000 * (len("class/image_00000.jpg") + 16)
