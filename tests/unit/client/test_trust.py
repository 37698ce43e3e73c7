"""A workspace that somebody else made runs nothing and is sent nothing until it is trusted."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client.connect import connect, refuse_plain
from muster.client.team import trust
from muster.client.workspace import create_workspace, find_workspace, trust_workspace
from muster.errors import AccessDenied
from muster.host.http import Address

MUSTER = Path(sys.executable).with_name("muster")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def foreign(folder: Path, **more: Any) -> Path:
    """A folder as a clone or an archive brings it: with a `.muster` that was made elsewhere."""
    made = create_workspace(folder.parent / "elsewhere", exist_ok=True).root
    shutil.copytree(made, folder / ".muster")
    config = folder / ".muster" / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **more}))
    return folder


def muster(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(MUSTER), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60, **options)


def test_a_foreign_folder_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w')")
    folder = foreign(
        tmp_path / "clone",
        encryption={"key_command": f"touch {ran}; head -c 32 /dev/urandom | base64"},
        engines={"local": "evil:Engine"},
    )
    for words in (("ps",), ("status",), ("up", "--port", "0"), ("down",)):
        done = muster(folder, *words, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert done.returncode == 2, (words, done.stderr)
        assert "is not trusted" in done.stderr and f"muster trust {folder}" in done.stderr
    assert not ran.exists()
    assert not (folder / ".muster" / "server").exists(), "no server was started"


def test_it_is_trusted_once_somebody_says_so(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "clone")
    with pytest.raises(trust.Untrusted):
        connect(find_workspace(folder), start=False)
    assert muster(folder, "trust").returncode == 0
    assert find_workspace(folder).root == folder / ".muster"
    assert "not running" in muster(folder, "status").stdout


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("y", 0)])
def test_at_a_terminal_it_is_asked_once(tmp_path: Path, answer: str, code: int) -> None:
    folder = foreign(tmp_path / "clone")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [MUSTER, "status"], cwd=folder, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, check=False
        )
        assert done.returncode == code
        said = b""
        # The terminal hands over what was typed and what was printed in pieces.
        while b"Trust it? [y/N]" not in said:
            assert select.select([ours], [], [], 10)[0], said
            said += os.read(ours, 10_000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert muster(folder, "status").returncode == code, "the answer is kept"


def test_another_workspace_in_a_trusted_place_is_asked_for_again(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    root = create_workspace(folder).root
    assert find_workspace(folder).root == root
    shutil.rmtree(root)
    foreign(folder)
    with pytest.raises(trust.Untrusted):
        find_workspace(folder)


def test_a_folder_of_somebody_else_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = foreign(tmp_path / "shared")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(trust.Untrusted, match="it belongs to"):
        find_workspace(folder)


def test_a_home_workspace_of_somebody_else_is_not_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_workspace(home)
    shutil.rmtree(home / ".config")
    find_workspace(home)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(trust.Untrusted):
        find_workspace(home)


def test_a_folder_with_state_and_without_its_file_is_foreign_too(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "clone")
    (folder / ".muster" / "workspace.json").unlink()
    (folder / ".muster" / "server").mkdir()
    with pytest.raises(trust.Untrusted):
        find_workspace(folder)
    trust_workspace(folder)
    assert find_workspace(folder).root == folder / ".muster"


def test_a_workspace_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    root = create_workspace(tmp_path / "open").root
    (root / "workspace.json").chmod(0o666)
    with pytest.raises(AccessDenied, match="written by everybody"):
        find_workspace(tmp_path / "open")


def test_the_environment_names_trusted_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = foreign(tmp_path / "clone"), foreign(tmp_path / "other")
    monkeypatch.setenv("MUSTER_TRUSTED", f"{tmp_path / 'x'}:{folder}")
    assert find_workspace(folder).root == folder / ".muster"
    with pytest.raises(trust.Untrusted):
        find_workspace(other)
    monkeypatch.setenv("MUSTER_TRUSTED", "*")
    assert find_workspace(other).root == other / ".muster"


def test_the_servers_that_the_environment_names_need_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_SERVER", "https://team:8910")
    found = find_workspace(foreign(tmp_path / "clone", server={"url": "https://evil", "token_file": "t"}))
    assert found.server is not None and found.server.url == "https://team:8910"


@pytest.mark.parametrize("token_file", ["{secret}", "../../secret", "link", "~/secret"])
def test_a_token_file_outside_the_folder_is_refused(tmp_path: Path, home: Path, token_file: str) -> None:
    for place in (tmp_path, home):
        (place / "secret").write_text("s3cret")
    folder = tmp_path / "w"
    root = create_workspace(folder).root
    (root / "link").symlink_to(tmp_path / "secret")
    server = {"url": "http://127.0.0.1:1", "token_file": token_file.format(secret=tmp_path / "secret")}
    config = root / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "server": server}))
    with pytest.raises(AccessDenied, match="is outside of it"):
        find_workspace(folder)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.5:8910", "http://team:8910", "http://127.0.0.1.evil.org", "http://[fe80::1]:1"]
)
def test_tokens_do_not_go_over_plain_http(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_SERVER", url)
    monkeypatch.setenv("MUSTER_TOKEN", "t0ken")
    with pytest.raises(AccessDenied, match="has no TLS"):
        connect(find_workspace(tmp_path))
    monkeypatch.setenv("MUSTER_PLAIN_HTTP", "1")
    refuse_plain(Address(url, "t0ken"))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://team", "unix:/x"]
)
def test_on_this_machine_and_with_tls_they_do(url: str) -> None:
    refuse_plain(Address(url, "t0ken"))
