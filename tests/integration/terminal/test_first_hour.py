"""The first hour: a script to paste, a colleague who connects, a server that leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import processes_of, wait_until
from tests.integration.terminal.conftest import MUSTER, Desk

ROOT = Path(__file__).parents[3]


def test_the_script_of_the_quick_start_runs_alone_and_in_parallel(desk: Desk) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text()
    script = re.search(r"```python\n(# train\.py\n.*?)```", text, re.S)
    assert script is not None
    (desk.folder / "pasted.py").write_text(script[1])
    for args in ((), ("--procs", "2")):
        done = desk.run("run", "pasted.py", *args, "-q")
        assert done.returncode == 0, done.stderr
        assert "GLOO_SOCKET_IFNAME" not in done.stderr
    found = json.loads(desk.run("metrics", "@latest", "loss", "--json").stdout)
    assert {record["rank"] for record in found} == {0, 1}
    assert len(found) == 40


def test_a_run_can_be_made_again_and_compared(desk: Desk) -> None:
    assert desk.run("rerun", "first", "-q", "--set", "tags.sweep=lr").returncode == 0
    again = json.loads(desk.run("show", "@latest", "--json").stdout)
    assert (again["tags"]["sweep"], again["snapshot"]) == (
        "lr", json.loads(desk.run("show", "first", "--json").stdout)["snapshot"],
    )  # fmt: skip
    found = json.loads(desk.run("compare", "first", "@latest", "--json").stdout)
    assert {row["what"] for row in found["differences"]} >= {"tag sweep", "tag rerun_of"}
    assert "command" not in {row["what"] for row in found["differences"]}
    assert desk.run("download", "first", "code", "--to", "back").returncode == 0
    assert (desk.folder / "back/code/train.py").read_text() == (desk.folder / "train.py").read_text()
    kept = json.loads(desk.run("show", "first", "--json").stdout)
    assert "muster/provenance.json" in {file["path"] for file in kept["files"]}


def test_a_retry_is_followed_to_its_end(desk: Desk) -> None:
    screen = desk.type("retry", "broken")
    assert screen.code == 1
    assert "attempt 2 starts from the beginning" in screen.text
    assert "Failed after" in screen.text
    assert "attempt 1" not in screen.text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_colleague_pastes_one_line_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, home = tmp_path / "team", tmp_path / "colleague"
    folder.mkdir()
    home.mkdir()
    team = Desk(folder)
    assert team.run("init", "--name", "vision").returncode == 0
    (folder / "hello.py").write_text("print('hello')")
    said = tmp_path / "said.txt"
    with said.open("wb") as out:
        command = [*MUSTER, "up", "--tls", "--port", str(free_port())]
        server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until(lambda: "muster login" in said.read_text(), 60.0, "the line to paste")
        line = re.search(r"muster login (\S+) --fingerprint (\S+)", said.read_text())
        assert line is not None
        assert team.run("run", "hello.py", "-q").returncode == 0
        token = team.run("up", "--print-token").stdout.strip()
        environment = {**os.environ, "HOME": str(home), "TERM": "dumb"}

        def colleague(*args: str, given: str = "") -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*MUSTER, *args], cwd=home, env=environment, input=given, capture_output=True, text=True, check=False
            )

        unknown = colleague("login", line[1], "--token-file", "-", given=token)
        assert unknown.returncode == 2
        assert f"muster login {line[1]} --fingerprint {line[2]}" in unknown.stderr
        wrong = colleague("login", line[1], "--fingerprint", line[2], "--token-file", "-", given="wrong")
        assert wrong.returncode == 2
        done = colleague("login", line[1], "--fingerprint", line[2], "--token-file", "-", given=token)
        assert done.returncode == 0, done.stderr
        assert "hello" in colleague("ps").stdout
        assert line[1] in colleague("status").stdout
        assert line[1] in colleague("workspaces").stdout
        assert colleague("logout").returncode == 0
        assert "no workspace in or above" in colleague("ps").stderr
        assert not (home / ".muster").exists()
        assert any("muster.agent" in " ".join(process.cmdline()) for process in processes_of(folder))
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
        wait_until(lambda: not processes_of(folder), 20.0, "the end of the idle agent")
        assert "not running" in team.run("status").stdout
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        for process in processes_of(folder):
            process.kill()


def test_agents_that_a_killed_server_left_are_seen_and_ended(tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    alone = Desk(folder)
    (folder / "hello.py").write_text("print('hello')")
    assert alone.run("init").returncode == 0
    assert alone.run("run", "hello.py", "-q").returncode == 0
    try:
        pid = json.loads(alone.run("status", "--json").stdout)["server"]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(process.pid != pid for process in processes_of(folder)), 20.0, "the server's end")
        assert "the agent of local-0 is still there" in alone.run("status").stdout
        assert alone.run("down").returncode == 0
        wait_until(lambda: not processes_of(folder), 20.0, "the agent's end")
    finally:
        for process in processes_of(folder):
            process.kill()


def test_a_silent_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a short limit: the screen of a run that prints nothing says how long, in place of its rate."""
    folder = tmp_path / "silent"
    folder.mkdir()
    silent = Desk(folder)
    (folder / "sleeps.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(120)\n")
    assert silent.run("init").returncode == 0
    try:
        assert silent.run("run", "sleeps.py", "--name", "quiet", "--detach").returncode == 0
        code = "import muster.cli.views.movement as m; m.SILENCE_S = 0.1; from muster.cli.main import main; main()"

        def shown() -> bool:
            time.sleep(0.2)
            done = subprocess.run(
                [sys.executable, "-c", code, "ps"], cwd=folder, capture_output=True, text=True, check=False
            )
            return "without output or metric" in done.stdout

        wait_until(shown, 60.0, "the silence in ps")
    finally:
        silent.run("cancel", "quiet", "--force")
        silent.run("wait", "quiet")
        silent.run("down")
        wait_until(lambda: not processes_of(folder), 20.0, "the end of its processes")
