"""Every template of `muster init --template` trains with its real framework, as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.training import TIMEOUT_S

from muster.cli.templates import TEMPLATES

ENVIRONMENT_OF = {
    "ddp": "torch",
    "lightning": "torch",
    "transformers": "torch",
    "horovod": "horovod-torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
}
REPORT = re.compile(r"rank (\d+) of (\d+): loss ([\d.]+) -> ([\d.]+)")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_trains(name: str, shared: Path) -> None:
    environment = ENVIRONMENTS[ENVIRONMENT_OF[name]]
    if not environment.is_made:
        pytest.skip(f"the environment {environment.name} is not made (make frameworks)")
    muster = environment.folder / "bin" / "muster"
    check_training(muster, name, shared)


def check_training(muster: Path, name: str, folder: Path) -> None:
    """The two ranks of a template report a loss that fell, and the run has it as a metric and keeps a model."""
    said = call(muster, "init", name, "--template", name, folder=folder)
    assert "lacks" not in said, said
    said = call(muster, "run", f"{name}/job.yml", folder=folder)
    reports = REPORT.findall(said)
    assert sorted(rank for rank, *_ in reports) == ["0", "1"], said[-4000:]
    assert all(size == "2" and float(last) < 0.8 * float(first) for _, size, first, last in reports), said[-4000:]
    run = json.loads(call(muster, "show", "@latest", "--json", folder=folder))
    assert run["status"] == "Completed" and run["metrics"]["loss"] > 0
    assert any(file["path"].startswith("outputs/") for file in run["files"])


def call(muster: Path, *words: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [str(muster), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S - 50,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + (done.stderr if words[0] != "show" else "")
