"""Several files and patterns are one input."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.sdk.data.dataset import Dataset
from muster.sdk.data.gathering import _matches, gather, is_several


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path / "cache" / "environments"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("data/train.csv", "data/test.csv", "data/deep/more.csv", "data/readme.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "data"


def names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def test_one_folder_and_all_below_it_are_not_several(files: Path) -> None:
    assert not is_several([str(files)]) and not is_several([f"{files}/**"]) and not is_several(["https://a/b?c=1"])
    assert is_several([f"{files}/*.csv"]) and is_several([str(files), str(files)])


def test_files_keep_their_paths_below_what_they_have_in_common(files: Path) -> None:
    assert names(gather([f"{files}/train.csv", f"{files}/deep/more.csv"])) == ["deep/more.csv", "train.csv"]
    assert names(gather([f"{files}/**/*.csv"])) == ["deep/more.csv", "test.csv", "train.csv"]
    assert Dataset.File.from_files([f"{files}/test.csv", f"{files}/train.csv"]).to_path() == ["/test.csv", "/train.csv"]


def test_what_was_gathered_once_never_changes(files: Path) -> None:
    first = gather([f"{files}/*.csv"])
    assert gather([f"{files}/*.csv"]) == first
    (files / "train.csv").write_text("new")
    second = gather([f"{files}/*.csv"])
    assert second != first and (first / "train.csv").read_text() == "data/train.csv"
    assert sorted(folder.name for folder in first.parent.iterdir()) == sorted([first.name, second.name])


def test_nothing_is_an_error_that_names_the_pattern(files: Path) -> None:
    with pytest.raises(JobError, match=r"no file is there for .*\*\.parquet"):
        gather([f"{files}/*.parquet"])


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("a/*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b/c.csv", False),
        ("a/**/*.csv", "a/b/c.csv", True),
        ("a/**/*.csv", "a/c.csv", True),
        ("a/?.csv", "a/b.csv", True),
        ("a/b[1].csv", "a/b[1].csv", True),
    ],
)
def test_patterns_in_datastores(pattern: str, path: str, is_meant: bool) -> None:
    assert _matches(path, pattern) is is_meant


def test_chosen_rows_are_no_input_of_a_job(files: Path) -> None:
    rows = Dataset.Tabular.from_delimited_files(f"{files}/train.csv").take(1)
    with pytest.raises(JobError, match="rows or columns"):
        rows.as_named_input("rows").to_input()
