"""The commands that look at runs and keep house, against a real server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from muster.paths import WorkspacePaths

TRAIN = """
import os, sys
from pathlib import Path
from muster import Run
run = Run.get_context()
for step in range(5):
    run.log("loss", 1 / (step + 1))
    print("step", step)
if os.environ.get("RANK", "0") == "0":
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/model.txt").write_text("a model")
"""


def test_a_run_can_be_looked_at_from_all_sides(cli: Any, workspace: Path) -> None:
    assert cli("run", cli.script("train.py", TRAIN), "--procs", "2", "--name", "otter", "-q").returncode == 0
    view = json.loads(cli("show", "otter", "--json").stdout)
    assert {"id", "status", "reason", "verdict", "attempts", "metrics", "files"} <= set(view)
    assert view["metrics"]["loss"] == 0.2
    assert [entry["path"] for entry in view["files"] if entry["path"].startswith("outputs/")] == ["outputs/model.txt"]

    prefix = view["id"][:-1]
    assert json.loads(cli("show", prefix, "--json").stdout)["id"] == view["id"]
    story = cli("show", "@latest").stdout
    assert "outputs/model.txt" in story
    assert "loss" in story

    (listed,) = json.loads(cli("ps", "--json").stdout)
    assert listed["id"] == view["id"]
    assert {"id", "status", "reason", "verdict", "attempts", "metrics", "files"} <= set(listed)
    assert "otter" in cli("ps").stdout or view["id"] in cli("ps").stdout

    assert sorted(cli("logs", "otter").stdout.splitlines()) == sorted(
        f"[rank {rank}] step {step}" for rank in (0, 1) for step in range(5)
    )
    assert cli("logs", "otter", "--rank", "1", "--tail", "2").stdout == "[rank 1] step 3\n[rank 1] step 4\n"
    assert cli("logs", "otter", "--rank", "1", "--raw").stdout == "".join(f"step {step}\n" for step in range(5))
    entries = [json.loads(line) for line in cli("logs", "-f", "otter", "--rank", "0", "--json").stdout.splitlines()]
    assert [entry["text"] for entry in entries] == [f"step {step}" for step in range(5)]
    one = ("logs", "otter", "--rank", "1")
    assert cli(*one, "--head", "2", "--raw").stdout == "step 0\nstep 1\n"
    assert cli(*one, "--lines", "2:3").stdout == "[rank 1] step 1\n[rank 1] step 2\n"
    assert cli(*one, "--grep", "[13]$", "--since", "1h").stdout == "[rank 1] step 1\n[rank 1] step 3\n"
    assert cli(*one, "--grep", "step", "--tail", "1").stdout == "[rank 1] step 4\n"
    assert cli(*one, "--since", "2100-01-01").stdout == ""
    assert cli(*one, "--bytes", "7:12").stdout == "step 1"
    assert cli(*one, "--grep", "(").returncode == 2
    assert cli("logs", "otter", "--raw").returncode == 2
    assert cli("logs", "otter", "--rank", "7").returncode == 2

    assert cli("download", "otter", "outputs", "--to", "here").returncode == 0
    assert (workspace / "here" / "outputs" / "model.txt").read_text() == "a model"
    assert cli("download", "otter").returncode == 0
    assert (workspace / "otter" / "user_logs" / "std_log_process_0.txt").exists()
    assert cli("download", "otter", "nothing").returncode == 2

    assert cli("rm", "otter", stdin=subprocess.DEVNULL).returncode == 2
    assert cli("rm", "otter", "--yes").returncode == 0
    assert cli("show", view["id"]).returncode == 2
    assert json.loads(cli("ps", "--json").stdout) == []


def test_runs_are_listed_newest_first_and_filtered(cli: Any) -> None:
    script = cli.script("x.py", "import sys; sys.exit(int(sys.argv[1]))")
    assert cli("run", script, "-q", "--experiment", "one", "--", "0").returncode == 0
    assert cli("run", script, "-q", "--experiment", "two", "--", "3").returncode == 1

    def experiments(*options: str) -> list[str]:
        return [view["experiment"] for view in json.loads(cli("ps", "--json", *options).stdout)]

    assert experiments() == ["two", "one"]
    assert experiments("-n", "1") == ["two"]
    assert experiments("--status", "completed") == ["one"]
    assert experiments("--experiment", "one") == ["one"]
    assert experiments("--sort", "experiment") == ["one", "two"]
    assert experiments("--sort", "-experiment", "-n", "1") == ["two"]
    assert cli("wait", "@latest").returncode == 1


def test_following_logs_starts_at_the_beginning_and_ends_with_the_run(cli: Any, workspace: Path) -> None:
    script = cli.script(
        "slow.py",
        "import time\nfrom pathlib import Path\nprint('one', flush=True)\n"
        f"while not Path({str(workspace / 'go')!r}).exists(): time.sleep(0.05)\nprint('two')\n",
    )
    run_id = cli.run_id(script)
    process = cli.start("logs", "-f", run_id)
    assert process.stdout.readline() == "one\n"
    (workspace / "go").touch()
    rest, _ = process.communicate(timeout=60)
    assert rest == "two\n"
    assert process.returncode == 0


def test_waiting_gives_up_when_the_time_is_up(cli: Any) -> None:
    run_id = cli.run_id(cli.script("wait.py", "import time; time.sleep(300)"))
    assert cli("wait", run_id, "--timeout", "1").returncode == 124
    assert cli("rm", run_id, "--yes").returncode == 2
    assert cli("cancel", run_id, "--force").returncode == 0
    assert cli("wait", run_id).returncode == 130
    again = cli("cancel", run_id)
    assert (again.returncode, again.stdout) == (0, "")


def test_the_status_starts_nothing_and_down_ends_the_server(cli: Any, workspace: Path) -> None:
    assert "not running" in cli("status").stdout
    assert cli("down").stdout == "no server is running\n"
    assert not (workspace / ".muster" / "server" / "server.json").exists()
    assert cli("run", cli.script("x.py", "print(1)")).returncode == 0
    found = json.loads(cli("status", "--json").stdout)
    assert found["server"]["pid"] > 0
    assert found["runs"] == []
    assert cli("down").returncode == 0


def test_the_server_is_not_ended_under_an_active_run_unless_forced(cli: Any) -> None:
    run_id = cli.run_id(cli.script("wait.py", "import time; time.sleep(300)"))
    assert cli("down").returncode == 2
    assert cli("down", "--force").returncode == 0
    # The next command starts a server again, which finds the run alive.
    assert json.loads(cli("show", run_id, "--json").stdout)["status"] in (
        "Running",
        "Preparing",
        "Provisioning",
        "Queued",
    )
    assert cli("cancel", run_id, "--force").returncode == 0
    assert cli("wait", run_id).returncode == 130


def test_init_makes_a_workspace_once(cli: Any, workspace: Path) -> None:
    assert cli("init", "inner", "--name", "vision").returncode == 0
    assert json.loads((workspace / "inner" / ".muster" / "workspace.json").read_text())["name"] == "vision"
    again = cli("init", "inner")
    assert again.returncode == 2
    assert "already" in again.stderr


def test_a_server_for_a_team_answers_over_tcp_and_stops_at_ctrl_c(
    cli: Any, workspace: Path, wait_for: Callable[..., Any]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = cli.start("up", "--port", str(port))
    try:
        wait_for(lambda: _connects(port) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        token = cli("up", "--print-token").stdout.strip()
        environment = {"MUSTER_SERVER": f"http://127.0.0.1:{port}", "MUSTER_TOKEN": token}
        listed = cli("ps", "--json", env={**os.environ, **environment})
        assert (listed.returncode, listed.stdout) == (0, "[]\n"), listed.stderr
        wrong = cli("ps", env={**os.environ, **environment, "MUSTER_TOKEN": "wrong"})
        assert wrong.returncode == 2
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode in (0, 130, -signal.SIGINT)


def test_a_command_that_is_typed_while_a_server_starts_waits_for_it(
    cli: Any, workspace: Path, wait_for: Callable[..., Any]
) -> None:
    paths = WorkspacePaths(workspace / ".muster")
    process = cli.start("up", "--port", "0")
    listed = None
    try:
        wait_for(lambda: _is_locked(paths.server_lock))
        _signal_all(process.pid, signal.SIGSTOP)
        assert not paths.server_info.exists(), "it was to be stopped before it answers"
        listed = cli.start("ps", "--json")
        wait_for(lambda: _is_locked(paths.start_lock))
        _signal_all(process.pid, signal.SIGCONT)
        out, err = listed.communicate(timeout=30)
        assert (listed.returncode, out) == (0, "[]\n"), err
        assert process.poll() is None, "the one that was starting serves"
    finally:
        _signal_all(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        if listed is not None:
            listed.kill()


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _signal_all(pid: int, number: int) -> None:
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        process.send_signal(number)


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_beyond_this_machine_is_refused_without_tls(cli: Any) -> None:
    refused = cli("up", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "--tls" in refused.stderr


def test_no_server_at_the_given_address_is_exit_code_three(cli: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "MUSTER_SERVER": f"http://127.0.0.1:{port}", "MUSTER_TOKEN": "x"}
    done = cli("ps", env=environment)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_the_doctor_looks_at_this_machine(cli: Any) -> None:
    findings = json.loads(cli("doctor", "--json").stdout)
    assert {"python", "cpus", "memory", "gpus", "shared memory", "ports", "workspace", "clock"} <= {
        finding["topic"] for finding in findings
    }
    assert all(finding["level"] in ("ok", "warn", "fail") for finding in findings)


def test_runs_are_completed_by_a_running_server(cli: Any) -> None:
    run_id = cli.run_id(cli.script("x.py", "print(1)"))
    environment = {**os.environ, "_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster show ", "COMP_CWORD": "2"}
    words = cli(env=environment).stdout.split()
    assert run_id in words
    assert "@latest" in words


def test_a_long_list_of_runs_hides_nothing(cli: Any, workspace: Path) -> None:
    """What runs is found behind hundreds of newer runs, and `--all` means all."""
    running = cli.run_id(cli.script("slow.py", "import time; time.sleep(60)"))
    with sqlite3.connect(WorkspacePaths(workspace / ".muster").database) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(runs)") if row[1] != "seq"]
        (original,) = database.execute(f"SELECT {', '.join(columns)} FROM runs").fetchall()
        for number in range(1205):
            copy = dict(zip(columns, original, strict=True))
            copy |= {"id": f"old-{number}", "key": f"k{number}", "name": None, "status": "Completed", "attempt": 0}
            values = ", ".join("?" * len(columns))
            database.execute(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({values})", list(copy.values()))
    listed = [entry["id"] for entry in json.loads(cli("ps", "--all", "--json").stdout)]
    assert len(listed) == len(set(listed)) == 1206
    assert listed[-1] == running
    assert [entry["id"] for entry in json.loads(cli("status", "--json").stdout)["runs"]] == [running]
    assert running in cli("status").stdout
    few = cli("ps", "--limit", "3")
    assert len(few.stdout.splitlines()) == 4
    assert "--all" in few.stderr
