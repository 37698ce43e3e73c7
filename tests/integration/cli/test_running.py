"""`muster run` against a real server: results, exit codes, Ctrl-C, closed pipes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HELLO = """
import os, sys
print("hello from", os.environ.get("RANK", "nobody"), *sys.argv[1:])
"""

FAILS = """
import os, time
print("start", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("boom")
time.sleep(60)
"""

WAITS = """
import time
print("up", flush=True)
time.sleep(300)
"""

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_a_script_runs_on_two_nodes_and_its_lines_carry_their_rank(cli: Any) -> None:
    done = cli("run", cli.script("train.py", HELLO), "--nodes", "2", "--procs", "1", "--", "--of", "$WORLD_SIZE")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] hello from 0 --of 2", "[rank 1] hello from 1 --of 2"]
    assert "Completed" in done.stderr
    assert "2 ranks on 2 nodes" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_single_process_has_no_prefix(cli: Any) -> None:
    done = cli("run", cli.script("train.py", HELLO))
    assert done.stdout == "hello from nobody\n"


def test_a_job_file_runs_from_another_folder_with_options_on_top(cli: Any, workspace: Path) -> None:
    (workspace / "jobs" / "src").mkdir(parents=True)
    (workspace / "jobs" / "src" / "train.py").write_text(HELLO)
    (workspace / "jobs" / "job.yml").write_text(
        "code: ./src\ncommand: python train.py ${{inputs.epochs}} $NOTE\ninputs: {epochs: 1}\n"
    )
    done = cli("run", "jobs/job.yml", "--input", "epochs=7", "--env", "NOTE=hi", "--name", "lucky")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello from nobody 7 hi\n"
    assert json.loads(cli("show", "lucky", "--json").stdout)["name"] == "lucky"


def test_detached_it_prints_the_id_and_nothing_else(cli: Any) -> None:
    done = cli("run", cli.script("train.py", HELLO), "--procs", "2", "--detach")
    assert done.returncode == 0, done.stderr
    (run_id,) = done.stdout.splitlines()
    assert json.loads(cli("show", run_id, "--json").stdout)["id"] == run_id
    assert cli("wait", run_id, "--timeout", "1m").returncode == 0


def test_as_json_the_whole_run_is_printed_at_the_end(cli: Any) -> None:
    view = json.loads(cli("run", cli.script("train.py", HELLO), "--json").stdout)
    assert view["status"] == "Completed"


def test_a_failed_run_ends_with_its_verdict(cli: Any) -> None:
    done = cli("run", cli.script("bad.py", FAILS), "--procs", "2")
    assert done.returncode == 1
    assert "rank 1 on " in done.stderr
    assert "ValueError: boom" in done.stderr
    assert "next:" in done.stderr
    assert "[rank 1] ValueError: boom" in done.stdout.splitlines()


def test_results_beside_the_script_are_not_taken_for_those_of_a_run(cli: Any, workspace: Path) -> None:
    for folder in ("outputs", "logs"):
        (workspace / folder).mkdir()
        (workspace / folder / "old.txt").write_text("of an earlier run")
    fails = "open('outputs/new.txt', 'w').write('mine')\nraise SystemExit(1)\n"
    done = cli("run", cli.script("train.py", fails), "--nodes", "2")
    assert done.returncode == 1
    assert done.stderr.count("outputs/ in the code folder is not sent") == 1
    files = {entry["path"] for entry in json.loads(cli("show", "@latest", "--json").stdout)["files"]}
    assert {name for name in files if "outputs/" in name or "old.txt" in name} <= {
        "outputs/new.txt",
        "node_1/outputs/new.txt",
    }
    assert files & {"outputs/new.txt", "node_1/outputs/new.txt"}


def test_the_first_ctrl_c_cancels_the_run(cli: Any) -> None:
    process = cli.start("run", cli.script("wait.py", WAITS))
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Cancelling" in said
    assert json.loads(cli("show", "@latest", "--json").stdout)["status"] == "Canceled"


def test_the_second_ctrl_c_kills_what_ignores_the_first(cli: Any) -> None:
    process = cli.start("run", cli.script("stubborn.py", IGNORES_SIGTERM))
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "CancelRequested" in line:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)  # far below the grace of 30 s
    assert process.returncode == 130
    assert "Killing" in said


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_a_client_that_is_killed_leaves_the_run_running(cli: Any, number: signal.Signals) -> None:
    process = cli.start("run", cli.script("wait.py", WAITS))
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    view = json.loads(cli("show", "@latest", "--json").stdout)
    assert view["status"] == "Running"
    assert view["attempts"][-1]["ranks"][0]["state"] == "running"


def test_a_reader_that_goes_away_is_no_error(cli: Any, workspace: Path) -> None:
    many = "for i in range(200_000): print('line', i)\n"
    process = cli.start("run", cli.script("many.py", many))
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) == 141
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    process.stderr.close()


def test_what_a_rank_prints_in_any_encoding_arrives(cli: Any) -> None:
    text = "import sys\nsys.stdout.buffer.write(b'caf\\xe9 \\xe2\\x82\\xac\\n\\x1b[31mred\\x1b[0m\\n')\n"
    script = cli.script("bytes.py", text)
    assert cli("run", script).stdout == "caf\ufffd \u20ac\nred\n"
    raw = cli("logs", "@latest", "--raw", text=False)
    assert raw.stdout == b"caf\xe9 \xe2\x82\xac\n\x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("comand: python x.py\n", "command"),
        ("- a\n- b\n", "list"),
        ("command: python ${{inputs.nope}}\n", "nope"),
        ("command: python x.py\ncode: ./missing\n", "missing"),
        ("command: echo hi\ncompute: nowhere\n", "nowhere"),
        ("command: echo hi\nresources: {gpus_per_node: 1000}\n", "1000"),
    ],
)
def test_bad_jobs_are_refused_before_anything_starts(cli: Any, workspace: Path, job: str, said: str) -> None:
    (workspace / "job.yml").write_text(job)
    done = cli("run", "job.yml")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(cli("ps", "--json").stdout) == []


def test_the_live_view_shows_state_ranks_and_progress(cli: Any, terminal: Callable[..., Any], workspace: Path) -> None:
    cli.script(
        "train.py",
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from muster import Run\n"
        "run = Run.get_context()\n"
        "print('first line')\n"
        "run.log('images_per_sec', 123.0)\n"
        "run.progress(3, 10, 'steps')\n"
        "sys.stdout.write('\\r 30% of it'); sys.stdout.flush()\n"
        f"while not Path({str(workspace / 'go')!r}).exists(): time.sleep(0.05)\n"
        "print('\\r100% of it')\n",
    )
    screen = terminal("run", "train.py", "--procs", "2")
    screen.until(r"\[rank 1\]\S* first line")
    screen.until("2/2 ranks")
    screen.until("123.0 images/s")
    screen.until("3/10 steps")
    screen.until(r"\[rank 0\]\S*  30% of it")
    (workspace / "go").touch()
    assert screen.end() == 0
    assert "\x1b[?25h" in screen.text  # the cursor is back
    summary = screen.text.rsplit("Completed", 1)[1]
    assert "2 ranks on 1 node" in summary
    assert "123.0 images/s" in summary


def test_ctrl_c_on_a_terminal_cancels(cli: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", cli.script("wait.py", WAITS), NO_COLOR="1")
    screen.until("up\r\n")
    screen.press(b"\x03")
    screen.until("Cancelling")
    assert screen.end() == 130
    assert "\x1b[3" not in screen.text  # no colour


def test_a_closed_terminal_leaves_the_run_running(cli: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", cli.script("wait.py", WAITS))
    screen.until("up\r\n")
    screen.hang_up()
    assert json.loads(cli("show", "@latest", "--json").stdout)["status"] == "Running"


def test_progress_bars_of_many_ranks_stay_readable_without_a_terminal(cli: Any) -> None:
    cli.script(
        "bars.py",
        "import sys\nfor i in range(101):\n    sys.stdout.write(f'\\r{i:3d}%'); sys.stdout.flush()\nprint()\n",
    )
    done = cli("run", "bars.py", "--procs", "4")
    assert sorted(done.stdout.splitlines()) == [f"[rank {n}] 100%" for n in range(4)]


def test_it_works_where_the_terminal_cannot_show_every_character(cli: Any) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = cli("run", cli.script("e.py", "print('\\u20ac')\n"), env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "?\n"
