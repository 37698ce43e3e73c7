"""horovod-compat beside real Horovod: the same script of calls, the same figures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.environments import ENVIRONMENTS, Environment
from tests.frameworks.horovod_calls.comparison import KEPT, SCRIPTS, differences

TIMEOUT_S = 400
FRAMEWORKS = ("torch", "tensorflow")


def made(name: str) -> Environment:
    environment = ENVIRONMENTS[name]
    if not environment.is_made:
        pytest.skip(f"the environment {name} is not made (make frameworks)")
    return environment


def calls(environment: Environment, script: str, folder: Path, *options: str) -> str:
    """Run a script of calls by the environment's own mpirun; returns what it printed."""
    mpirun = [environment.folder / "bin" / "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    command = [str(part) for part in (*mpirun, environment.python, SCRIPTS / script, *options)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_horovod_gives_what_is_kept_of_it(framework: str, tmp_path: Path) -> None:
    """With which the layer is compared where no Horovod is built, for PyTorch in every test run."""
    calls(made(f"horovod-{framework}"), f"{framework}_calls.py", tmp_path, "real.json")
    assert not differences(read(KEPT / f"{framework}.json"), read(tmp_path / "real.json"))


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_layer_gives_what_is_kept_of_horovod(framework: str, tmp_path: Path) -> None:
    calls(made("horovod-compat"), f"{framework}_calls.py", tmp_path, "found.json", "--compat")
    assert not differences(read(KEPT / f"{framework}.json"), read(tmp_path / "found.json"))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


@pytest.mark.timeout(TIMEOUT_S)
def test_keras_3_trains_with_horovods_optimizer_and_callbacks(tmp_path: Path) -> None:
    said = calls(made("horovod-compat"), "keras3_calls.py", tmp_path)
    assert said.count("as it should be") == 2


@pytest.mark.timeout(TIMEOUT_S)
def test_horovods_own_callbacks_train_beside_tf_keras(tmp_path: Path) -> None:
    said = calls(made("horovod-tensorflow"), "keras2_callbacks.py", tmp_path)
    assert said.count("as it should be") == 2
