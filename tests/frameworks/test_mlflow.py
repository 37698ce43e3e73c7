"""MLflow's autologging in a run: what a script logs is the run's own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import MUSTER
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.training import TIMEOUT_S

from muster.client.connect import connect

VERSIONS = ("2", "3")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_scikit_learn_with_autologging_figures_images_and_tables(workspace: Path, version: str) -> None:
    logged = _trained(workspace, f"mlflow-{version}", "autolog.py")
    assert logged.metrics["training_accuracy_score"] > 0.9 and logged.params["max_iter"] == "200"
    assert {"plots/line.png", "images/black.png", "tables/t.json", "settings.yaml"} <= logged.files
    assert any(file.endswith("/MLmodel") for file in logged.files)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_lightning_with_autologging(workspace: Path, version: str) -> None:
    logged = _trained(workspace, f"lightning-mlflow-{version}", "autolog_lightning.py")
    assert logged.metrics["val_loss"] < 1.0 and "train_loss_epoch" in logged.metrics
    assert (logged.params["epochs"], logged.params["optimizer_name"]) == ("5", "SGD")
    assert any(file.endswith("/MLmodel") for file in logged.files)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_keras_with_autologging(workspace: Path, version: str) -> None:
    logged = _trained(workspace, f"keras-mlflow-{version}", "autolog_keras.py")
    assert logged.metrics["val_loss"] < 1.0 and {"loss", "mae", "val_mae"} <= logged.metrics.keys()
    assert (logged.params["epochs"], logged.params["batch_size"]) == ("5", "16")
    assert any(file.endswith("/MLmodel") for file in logged.files)


@dataclass(frozen=True)
class Logged:
    """What a run has of what its script logged."""

    metrics: Mapping[str, float]
    params: Mapping[str, str]
    files: frozenset[str]


def _trained(workspace: Path, name: str, script: str) -> Logged:
    environment = ENVIRONMENTS[name]
    if not environment.is_made:
        pytest.skip(f"the environment {name} is not made (make frameworks)")
    code = workspace / "code"
    code.mkdir()
    shutil.copy(Path(__file__).with_name(script), code)
    job = workspace / "job.yml"
    job.write_text(f"command: {environment.python} {script}\ncode: code\nexperiment_name: autolog\n")
    done = subprocess.run([MUSTER, "run", str(job)], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0 and "loaded the model again" in done.stdout, done.stdout + done.stderr
    client = connect()
    run = client.run("@latest")
    files = frozenset(file.path for file in client.files(run.id))
    return Logged(run.metrics, client.params(run.id), files)
