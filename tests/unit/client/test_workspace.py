"""Which workspace is meant."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.client.workspace import create_workspace, find_workspace
from muster.errors import Conflict, UserError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_the_nearest_workspace_above_is_found(tmp_path: Path) -> None:
    outer = create_workspace(tmp_path / "project", "outer")
    deep = tmp_path / "project/a/b"
    deep.mkdir(parents=True)
    assert find_workspace(deep) == outer
    inner = create_workspace(tmp_path / "project/a", "inner")
    assert find_workspace(deep) == inner


def test_without_one_the_home_workspace_is_made_on_first_use(tmp_path: Path, home: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    found = find_workspace(tmp_path / "elsewhere")
    assert found.root == home / ".muster"
    assert found.name == "home"
    assert find_workspace(tmp_path / "elsewhere").id == found.id


def test_a_new_workspace_is_private_and_ignored_by_git(tmp_path: Path) -> None:
    made = create_workspace(tmp_path / "My Project!")
    assert made.name == "My-Project"
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700
    assert (made.root / ".gitignore").read_text() == "*\n"
    assert set(json.loads(made.paths.config.read_text())) == {"id", "name", "created", "server"}


def test_a_workspace_is_not_made_twice_unless_that_is_fine(tmp_path: Path) -> None:
    made = create_workspace(tmp_path, "one")
    with pytest.raises(Conflict, match="already has a workspace"):
        create_workspace(tmp_path, "two")
    assert create_workspace(tmp_path, "two", exist_ok=True) == made


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 256])
def test_an_impossible_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="name"):
        create_workspace(tmp_path, name)


def test_many_at_once_make_one_workspace(tmp_path: Path) -> None:
    (tmp_path / ".muster").mkdir()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: find_workspace(tmp_path).id, range(8)))
    assert len(set(found)) == 1


def test_a_team_server_is_named_by_the_workspace_file(tmp_path: Path) -> None:
    root = create_workspace(tmp_path, "team").root
    (root / "token").write_text("t0ken\n")
    config = json.loads((root / "workspace.json").read_text())
    config["server"] = {"url": "https://gpu:8910", "token_file": "token", "certificate": None}
    (root / "workspace.json").write_text(json.dumps(config))
    server = find_workspace(tmp_path).server
    assert server is not None
    assert (server.url, server.read_token(), server.read_certificate()) == ("https://gpu:8910", "t0ken", None)


def test_a_team_server_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_workspace(tmp_path, "own")
    (tmp_path / "pem").write_text("PEM")
    monkeypatch.setenv("MUSTER_SERVER", "https://gpu:8910")
    monkeypatch.setenv("MUSTER_TOKEN", "t")
    monkeypatch.setenv("MUSTER_CERTIFICATE", str(tmp_path / "pem"))
    server = find_workspace(tmp_path).server
    assert server is not None
    assert (server.url, server.read_token(), server.read_certificate()) == ("https://gpu:8910", "t", "PEM")


def test_a_broken_workspace_file_is_named(tmp_path: Path) -> None:
    (create_workspace(tmp_path, "w").root / "workspace.json").write_text("{")
    with pytest.raises(UserError, match=r"workspace\.json is not a readable"):
        find_workspace(tmp_path)
