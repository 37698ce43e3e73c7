"""Batch scoring against a real server: every input once and in order, whatever dies."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli

from muster.client.connect import connect

__all__ = ["cli"]

SCORE = """
import os, time
from pathlib import Path
def init():
    global suffix
    suffix = Path(os.environ["AZUREML_MODEL_DIR"], "suffix.txt").read_text()
def run(mini_batch):
    # Slow until the test says that it has seen enough.
    while os.environ.get("GATE") and not os.path.exists(os.environ["GATE"]) and "030" in mini_batch[0]:
        time.sleep(0.05)
    time.sleep(float(os.environ.get("SLOW", "0")))
    return [Path(path).read_text() + suffix for path in mini_batch]
"""


@pytest.fixture
def prepared(cli: Any) -> Path:
    folder = Path(cli.folder)
    (folder / "model").mkdir()
    (folder / "model" / "suffix.txt").write_text("!")
    (folder / "data").mkdir()
    for number in range(60):
        (folder / "data" / f"{number:03}.txt").write_text(f"item {number}")
    cli.script("score.py", SCORE)
    return folder


EXPECTED = [f"item {number}!" for number in range(60)]


def test_a_killed_model_and_a_killed_rank_cost_no_item_and_double_none(cli: Any, prepared: Path) -> None:
    gate = prepared / "gate"
    variables = ["--set", f"environment_variables.GATE={gate}", "--set", "environment_variables.SLOW=0.05"]
    scoring = cli.start(
        "score", "./model", "--script", "score.py", "--input", "data", "--output", "out", "--procs", "2",
        "--mini-batch-size", "2", "--set", "retry.backoff_s=0", *variables,
    )  # fmt: skip
    models = wait_until(lambda: of_command(prepared, "muster.scoring.batch.model"), 60, "the processes with models")
    models[0].send_signal(signal.SIGKILL)
    wait_until(lambda: connect().run("@latest").checkpoints, 60, "a checkpoint")
    ranks = of_command(prepared, "muster.scoring.batch")
    leader = next(item for item in ranks if item.environ()["RANK"] == "0")
    leader.send_signal(signal.SIGKILL)
    gate.touch()
    said, _ = scoring.communicate(timeout=120)
    assert scoring.returncode == 0, said
    assert (prepared / "out" / "predictions.csv").read_text().splitlines() == EXPECTED


def test_a_poisoned_item_fails_alone_and_thresholds_end_the_run(cli: Any, prepared: Path) -> None:
    cli.script(
        "poisoned.py",
        "import os\ndef run(mini_batch):\n    if '007' in mini_batch[0]:\n        os.abort()\n    return mini_batch\n",
    )
    arguments = ("--script", "poisoned.py", "--input", "data", "--mini-batch-size", "1", "--retries", "1")
    done = cli("score", "./model", *arguments, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert len((prepared / "out" / "predictions.csv").read_text().splitlines()) == 59
    assert "try 1 of 2" in done.stdout + done.stderr and "SIGABRT" in done.stdout + done.stderr
    done = cli("score", "./model", *arguments, "--error-threshold", "0")
    assert done.returncode == 1 and "error_threshold allows 0" in done.stdout + done.stderr


def of_command(folder: Path, module: str) -> list[psutil.Process]:
    """Processes of this test's own workspace that run a module."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[1:2] == ["-m"] and words[2] == module and process.cwd().startswith(str(folder)):
                found.append(process)
        except (psutil.Error, IndexError, OSError):
            continue
    return found


def test_nothing_starts_where_the_model_data_or_script_is_missing(cli: Any, prepared: Path) -> None:
    for arguments, said in (
        (("nothing:1", "--input", "data", "--script", "score.py"), "no model 'nothing'"),
        (("./model", "--input", "nowhere", "--script", "score.py"), "nowhere"),
        (("./model", "--input", "data", "--script", "absent.py"), "no script"),
        (("./model", "--input", "data", "--script", "score.py", "--format", "xml"), "no such choice"),
    ):
        done = cli("score", *arguments)
        assert done.returncode != 0 and said in done.stderr, (said, done.stderr)
