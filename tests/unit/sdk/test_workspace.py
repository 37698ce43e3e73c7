"""`Workspace.from_config` in every kind of folder that users have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster import Workspace
from muster.client.workspace import create_workspace
from muster.errors import NotFound, UserError
from muster.sdk import notices

AZURE = {"subscription_id": "s", "resource_group": "g", "workspace_name": "vision"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(notices, "_printed", set())
    return folder


@pytest.mark.parametrize("place", ["config.json", ".azureml/config.json"])
def test_an_azure_configuration_names_a_workspace_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    file = tmp_path / "project" / place
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(AZURE))
    (tmp_path / "project/notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "project/notebooks")
    workspace = Workspace.from_config()
    assert workspace.name == "vision"
    assert workspace.ref.root == tmp_path / "project/.muster"
    assert "subscription is ignored" in capsys.readouterr().err
    assert Workspace.from_config().ref == workspace.ref
    assert Workspace.from_config(file).ref == workspace.ref


def test_a_workspace_nearer_than_the_azure_configuration_wins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(AZURE))
    inner = create_workspace(tmp_path / "inner", "inner")
    assert Workspace.from_config(tmp_path / "inner").ref == inner


def test_a_configuration_of_something_else_is_not_taken_for_azures(tmp_path: Path, home: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 3}')
    assert Workspace.from_config(tmp_path).ref.root == home / ".muster"
    with pytest.raises(UserError, match="names no workspace"):
        Workspace.from_config(tmp_path / "config.json")


def test_a_configuration_that_was_written_leads_back_to_its_workspace(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for workspace in (Workspace.from_config(), Workspace(ref=create_workspace(tmp_path / "other", "other"))):
        workspace.write_config(path=".azureml")
        assert Workspace.from_config("./.azureml/config.json").ref == Workspace.from_config().ref == workspace.ref
    assert capsys.readouterr().err == ""
    # Where the folder has gone, the file is one of Azure's.
    (tmp_path / "other/.muster").rename(tmp_path / "gone")
    assert Workspace.from_config().ref.root == tmp_path / "project/.muster"


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Workspace.from_config(tmp_path / "none")


def test_a_workspace_is_made_and_got_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Workspace.create("mine")
    assert Workspace.get("mine").ref == made.ref
    assert made.get_details()["name"] == "mine"
    with pytest.raises(NotFound, match="not 'other'"):
        Workspace.get("other")
