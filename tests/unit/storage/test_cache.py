"""What people see of the cache of staged data, and what they may remove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.cli.main import app
from muster.storage.connectors.files import Folder
from muster.storage.staging.cache import Cache, Held
from muster.storage.staging.model import Progress
from muster.storage.staging.stage import stage


def staged(cache: Cache, folder: Path, text: str) -> Held:
    folder.mkdir()
    (folder / "one.txt").write_text(text)
    return stage(Folder(str(folder)), str(folder), "input 'x'", None, cache, Progress())[0]


def test_what_a_job_uses_is_shown_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    cache = Cache(tmp_path / "cache", 10_000_000)
    used = staged(cache, tmp_path / "a", "used")
    staged(cache, tmp_path / "b", "free").release()
    shown = {item.digest: (item.size, item.files, item.in_use, item.first_file) for item in cache.trees()}
    assert shown[used.digest] == (4, 1, True, "one.txt")
    assert [item[2] for item in shown.values()].count(False) == 1
    said = CliRunner().invoke(app, ["cache", "clear", "--all", "--json"])
    assert json.loads(said.stdout)["in_use"] == 1, said.output
    assert [item.digest for item in cache.trees()] == [used.digest]
    used.release()
    assert CliRunner().invoke(app, ["cache", "clear", used.digest[:6]]).exit_code == 0
    assert cache.trees() == []


def test_it_must_be_clear_what_is_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    for arguments in ([], ["--all", "--older-than", "1d"], ["nothing"]):
        assert CliRunner().invoke(app, ["cache", "clear", *arguments]).exit_code == 2
