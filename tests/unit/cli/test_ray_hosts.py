"""Ray on given machines: what is printed, and what goes over ssh."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from muster.cli.commands.ray import _start
from muster.cli.main import app
from muster.client.workspace import create_workspace
from muster.engines.ray.machines import certificates
from muster.engines.ray.machines.starting import SECRETS, Host, Setup
from muster.errors import UserError

SSH = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/arguments
cat > {folder}/input
echo "{said}" >&2
exit {code}
"""


@pytest.fixture
def workspace_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create_workspace(tmp_path, "test")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fake_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0, said: str = "") -> None:
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.format(folder=folder, code=code, said=said))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_the_commands_to_type_are_printed_and_hold_no_secret(workspace_here: Path):
    done = CliRunner().invoke(app, ["ray", "hosts", "many", "--host", "me@10.0.0.1", "--host", "10.0.0.2"])
    assert done.exit_code == 0, done.output
    typed = [line for line in done.output.splitlines() if " start " in line]
    assert [line.split()[1] for line in typed] == ["me@10.0.0.1", "10.0.0.2"]
    assert "muster cluster create many --engine ray --option address=ray://10.0.0.1:10001" in done.output
    folder = workspace_here / ".muster" / "ray" / "many"
    assert all((folder / name).read_text().strip() not in done.output for name in SECRETS)


def test_secrets_travel_through_the_input_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_ssh(tmp_path, monkeypatch)
    folder = tmp_path / "secrets"
    certificates.make(folder, ["10.0.0.1"])
    setup = Setup([Host("10.0.0.1", "me@10.0.0.1")], "$HOME/.muster/ray/many")
    _start(setup, setup.head, folder)
    called = (tmp_path / "arguments").read_text()
    assert "me@10.0.0.1" in called
    assert "ray start" in called
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "input").read_bytes())) as archive:
        assert sorted(archive.getnames()) == sorted(SECRETS)
    assert all((folder / name).read_text().strip() not in called for name in SECRETS)


def test_a_machine_that_does_not_start_is_named_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_ssh(tmp_path, monkeypatch, code=127, said="ray: not found")
    folder = tmp_path / "secrets"
    certificates.make(folder, ["10.0.0.1"])
    setup = Setup([Host("10.0.0.1")], "$HOME/.muster/ray/many")
    with pytest.raises(UserError, match=r"10\.0\.0\.1: ray: not found"):
        _start(setup, setup.head, folder)


def test_a_file_for_rays_launcher_is_written_and_kept_in_step(workspace_here: Path):
    (workspace_here / "cluster.yml").write_text("name: many\nengine: ray\naddress: ray://h:10001\nmax_nodes: 3\n")
    arguments = ["ray", "file", "many", "--provider", "azure", "--from", "cluster.yml"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    path = workspace_here / "many.ray.yaml"
    made = yaml.safe_load(path.read_text())
    made["provider"]["resource_group"] = "mine"
    path.write_text(yaml.safe_dump(made))
    (workspace_here / "cluster.yml").write_text("name: many\nengine: ray\naddress: ray://h:10001\nmax_nodes: 7\n")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    again = yaml.safe_load(path.read_text())
    assert (again["max_workers"], again["provider"]["resource_group"]) == (7, "mine")


def test_a_setting_that_clusters_on_ray_do_not_have_is_refused(workspace_here: Path):
    (workspace_here / "cluster.yml").write_text("name: many\nmax_node: 3\n")
    done = CliRunner().invoke(app, ["ray", "file", "many", "--provider", "azure", "--from", "cluster.yml"])
    assert done.exit_code == 2
    assert "a cluster on Ray has no setting 'max_node'" in done.output
    assert not (workspace_here / "many.ray.yaml").exists()
