"""`muster bench scaling`: real runs, their table, their picture, and going on after a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
from muster import Run

world = int(os.environ["WORLD_SIZE"])
if Path(sys.argv[1]).exists() and world == 2:
    raise SystemExit("told to fail")
if os.environ["RANK"] == "0":
    run = Run.get_context()
    run.log("images_per_sec", 1.0)
    run.log("images_per_sec", 100.0 * world * (1.0 if world == 1 else 0.9))
    run.log("loss", 0.5)
"""


@pytest.fixture
def fail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there runs fail; it is no part of the code."""
    return tmp_path_factory.mktemp("switch") / "fail"


@pytest.fixture
def job(cli: Any, fail: Path) -> str:
    cli.script("train.py", SCRIPT)
    cli.script(
        "job.yml",
        "display_name: small\ncode: .\n"
        f"command: python train.py {fail}\n"
        "distribution: {type: pytorch, process_count_per_instance: 1}\n",
    )
    return "job.yml"


def test_each_size_is_run_and_compared_with_the_smallest_and_drawn(cli: Any, job: str) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs muster-ml[plot]")
    done = cli("bench", "scaling", job, "--procs", "1,2")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["PROCS", "NODES", "IMAGES_PER_SEC", "SPEED-UP", "EFFICIENCY"],
        ["1", "1", "100.0", "1.00x", "100", "%"],
        ["2", "1", "180.0", "1.80x", "90", "%"],
    ]
    kept = json.loads((cli.folder / "scaling" / "scaling.json").read_text())
    assert [row["efficiency"] for row in kept["rows"]] == [1.0, 0.9]
    assert (cli.folder / "scaling" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    drawn = (cli.folder / "scaling" / "scaling.svg").read_text()
    for word in ("images/s", "ideal", "90 %", "efficiency (%)", "processes"):
        assert f"<!-- {word} -->" in drawn


def test_a_failed_size_stops_the_study_and_the_same_command_goes_on_from_there(cli: Any, job: str, fail: Path) -> None:
    fail.touch()
    done = cli("bench", "scaling", job, "--procs", "1,2", "--no-plot")
    assert done.returncode == 1
    assert "the run with 2 processes failed" in done.stderr
    fail.unlink()
    done = cli("bench", "scaling", job, "--procs", "1,2", "--no-plot", "--json")
    assert done.returncode == 0, done.stderr
    assert "Kept from an earlier start: 1 run." in done.stderr
    assert [row["procs"] for row in json.loads(done.stdout)["rows"]] == [1, 2]
    assert len(json.loads(cli("ps", "--json").stdout)) == 3


def test_runs_of_other_code_are_not_mixed_with_those_of_this_one(cli: Any, job: str) -> None:
    command = ("bench", "scaling", job, "--no-plot", "--json", "--procs")
    assert cli(*command, "1").returncode == 0
    cli.script("train.py", SCRIPT.replace("100.0 * world", "500.0 * world"))
    done = cli(*command, "1,2")
    assert done.returncode == 0, done.stderr
    assert "The code has changed since the runs in scaling/scaling.json: starting over." in done.stderr
    assert "Kept from an earlier start" not in done.stderr
    assert [row["value"] for row in json.loads(done.stdout)["rows"]] == [500.0, 900.0]
    done = cli(*command, "1,2")
    assert "Kept from an earlier start: 2 runs." in done.stderr


def test_an_edit_during_a_study_does_not_reach_its_later_runs(cli: Any) -> None:
    text = "from pathlib import Path\nfrom muster import Run\nRun.get_context().log('images_per_sec', 100.0)\n"
    source = cli.folder / "edits.py"
    edit = f"Path({str(source)!r}).write_text('raise SystemExit(3)')\n"
    cli.script("edits.py", text + edit)
    cli.script("edits.yml", "code: .\ncommand: python edits.py\n")
    done = cli("bench", "scaling", "edits.yml", "--procs", "1", "--repeat", "2", "--no-plot")
    assert done.returncode == 0, done.stderr
    assert source.read_text() == "raise SystemExit(3)"


def test_a_metric_that_no_run_logged_is_named_with_those_that_were(cli: Any, job: str) -> None:
    done = cli("bench", "scaling", job, "--procs", "1", "--no-plot", "--metric", "tokens_per_sec")
    assert done.returncode != 0
    assert "no number called 'tokens_per_sec'" in done.stderr
    assert "images_per_sec, loss" in done.stderr


def test_a_throughput_of_nothing_cannot_be_compared(cli: Any) -> None:
    cli.script("idle.py", "from muster import Run\nRun.get_context().log('images_per_sec', 0.0)\n")
    cli.script("idle.yml", "code: .\ncommand: python idle.py\n")
    done = cli("bench", "scaling", "idle.yml", "--procs", "1", "--no-plot")
    assert done.returncode == 2
    assert "the last images_per_sec of run" in done.stderr and "is 0, which cannot be compared" in done.stderr
