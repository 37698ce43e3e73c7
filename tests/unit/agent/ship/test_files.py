"""What a job leaves behind, before it is sent."""

from __future__ import annotations

import os
from pathlib import Path

from muster.agent.ship.files import settle


def names(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_links_to_files_of_the_job_become_files(tmp_path: Path) -> None:
    out, work = tmp_path / "a" / "out", tmp_path / "a" / "work"
    (out / "epochs").mkdir(parents=True)
    work.mkdir()
    (out / "epochs" / "7.pt").write_text("seven")
    (work / "log.txt").write_text("log")
    (out / "latest").symlink_to("epochs/7.pt")
    (out / "all").symlink_to("epochs")
    (out / "log").symlink_to(work / "log.txt")
    assert settle(out, tmp_path / "a") == []
    wanted = {"epochs/7.pt": "seven", "latest": "seven", "all/7.pt": "seven", "log": "log"}
    assert names(out) == wanted
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert settle(out, tmp_path / "a") == []
    assert names(out) == wanted


def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    out.mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("not of the job")
    (out / "away").symlink_to(tmp_path / "elsewhere")
    (out / "gone").symlink_to("nothing")
    (out / "round").symlink_to(".")
    os.mkfifo(out / "pipe")
    (out / "kept").write_text("kept")
    told = settle(out, tmp_path / "a")
    assert [text.partition(":")[0] for text in told] == ["away", "gone", "pipe", "round"]
    assert names(out) == {"kept": "kept"}


def test_a_file_that_its_owner_may_not_read_can_be_sent(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "locked").write_text("x")
    (tmp_path / "out" / "locked").chmod(0)
    assert settle(tmp_path / "out", tmp_path) == []
    assert (tmp_path / "out" / "locked").stat().st_mode & 0o400
