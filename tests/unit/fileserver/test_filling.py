"""Fills: verified, resumable, bounded, and never seen half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.fileserver import folder
from muster.fileserver.filling import Fill
from muster.fileserver.folder import Impossible
from muster.fileserver.pace import Pace
from muster.paths import FileServerPaths
from muster.storage.connectors.base import TransferError
from muster.storage.staging.messages import ProgressReport
from muster.storage.staging.model import Progress, Unwanted
from muster.wire.data.access import Access, FileEntry

SOURCE = "azureml://datastores/photos/paths/set"


@pytest.fixture
def paths(tmp_path: Path) -> FileServerPaths:
    return folder.opened("pictures", "a" * 32, str(tmp_path / "served"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    (made / "sub").mkdir(parents=True)
    (made / "a.bin").write_bytes(os.urandom(100_000))
    (made / "sub" / "b.txt").write_bytes(b"text")
    return made


def bring(paths: FileServerPaths, source: Path, to: str = "train", limit: int = 10**9) -> Progress:
    progress = Progress()
    Fill(paths, SOURCE, to).run(Access("file", str(source), label=SOURCE), progress, lambda: limit)
    return progress


def test_files_come_with_their_content_and_are_read_by_others(paths: FileServerPaths, source: Path) -> None:
    bring(paths, source)
    found = paths.data / "train"
    assert (found / "a.bin").read_bytes() == (source / "a.bin").read_bytes()
    assert (found / "sub" / "b.txt").stat().st_mode & 0o777 == 0o444
    assert paths.state.stat().st_mode & 0o777 == 0o700
    assert folder.used_bytes(paths) >= 100_004


def test_a_second_fill_fetches_what_changed_alone(paths: FileServerPaths, source: Path) -> None:
    bring(paths, source)
    kept = (paths.data / "train" / "a.bin").stat().st_ino
    (source / "sub" / "b.txt").write_bytes(b"another text")
    (source / "c.bin").write_bytes(b"new")
    progress = bring(paths, source)
    assert progress.resumed_bytes == 100_000
    assert (paths.data / "train" / "a.bin").stat().st_ino == kept
    assert (paths.data / "train" / "sub" / "b.txt").read_bytes() == b"another text"
    assert (paths.data / "train" / "c.bin").read_bytes() == b"new"
    # One that was removed by hand comes back.
    (paths.data / "train" / "a.bin").unlink()
    bring(paths, source)
    assert (paths.data / "train" / "a.bin").read_bytes() == (source / "a.bin").read_bytes()


def test_a_fill_that_was_cut_off_goes_on_where_it_was(paths: FileServerPaths, source: Path) -> None:
    for index in range(20):
        (source / f"{index:02}.bin").write_bytes(os.urandom(10_000))
    progress = Progress()
    add = progress.add

    def stop_after_a_while(count: int, files: int = 0, resumed: bool = False, from_peer: bool = False) -> None:
        add(count, files, resumed, from_peer)
        if progress.done_files >= 5:
            progress.stop.set()

    progress.add = stop_after_a_while  # type: ignore[method-assign]
    fill = Fill(paths, SOURCE, "train")
    with pytest.raises(Unwanted):
        fill.run(Access("file", str(source), label=SOURCE), progress, lambda: 10**9)
    assert not (paths.data / "train").exists(), "clients see nothing of it yet"
    again = bring(paths, source)
    assert again.resumed_bytes > 0
    assert len(list((paths.data / "train").rglob("*.bin"))) == 21


def test_what_is_not_what_was_registered_is_never_shown(paths: FileServerPaths, source: Path) -> None:
    manifest = (FileEntry("a.bin", 100_000, sha256="0" * 64),)
    access = Access("file", str(source), label="azureml:photos:1", asset="photos:1", manifest=manifest)
    with pytest.raises(TransferError, match=r"a\.bin"):
        Fill(paths, SOURCE, "").run(access, Progress(), lambda: 10**9)
    assert list(paths.data.iterdir()) == []


def test_its_size_is_a_limit_that_is_checked_before_anything_comes(paths: FileServerPaths, source: Path) -> None:
    with pytest.raises(TransferError, match=r"may hold 50.0 kB") as caught:
        bring(paths, source, limit=50_000)
    assert caught.value.final and "muster fileserver resize" in caught.value.next
    assert list(paths.data.iterdir()) == []
    bring(paths, source, limit=10**6)


def test_a_folder_of_somebody_else_is_not_taken(paths: FileServerPaths, tmp_path: Path) -> None:
    with pytest.raises(Impossible, match=r"belongs to another file server \(pictures\)"):
        folder.opened("other", "b" * 32, str(paths.root))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(Impossible, match="not this file server's"):
        folder.opened("other", "b" * 32, str(tmp_path / "full"))
    assert folder.opened("pictures", "a" * 32, str(paths.root)) == paths


def test_removing_takes_the_data_and_nothing_else(paths: FileServerPaths, source: Path) -> None:
    bring(paths, source)
    (paths.root / "letter.txt").write_text("mine")
    folder.remove(paths)
    assert [item.name for item in paths.root.iterdir()] == ["letter.txt"]


def test_progress_has_the_rate_of_the_last_seconds_and_the_time_left() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.told(7, ProgressReport("", 0, 0, 0, 0, 0)).state == "listing"
    pace.told(7, ProgressReport("", 50_000_000, 1_050_000_000, 1, 10, 50_000_000))
    now = 5.0
    told = pace.told(7, ProgressReport("", 550_000_000, 1_050_000_000, 5, 10, 50_000_000))
    assert (told.state, told.text) == ("filling", "100.0 MB/s, about 5 s left")
    now = 30.0
    pace.told(7, ProgressReport("", 550_000_000, 1_050_000_000, 5, 10, 50_000_000))
    now = 45.0
    still = pace.told(7, ProgressReport("", 550_000_000, 1_050_000_000, 5, 10, 50_000_000))
    assert "nothing came in the last" in still.text
