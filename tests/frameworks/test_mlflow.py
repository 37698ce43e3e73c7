"""MLflow's autologging in a run: what a script logs is the run's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import MUSTER
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.training import TIMEOUT_S

from muster.client.connect import connect


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", ["mlflow-2", "mlflow-3"])
def test_scikit_learn_with_autologging_figures_images_and_tables(workspace: Path, name: str) -> None:
    environment = ENVIRONMENTS[name]
    if not environment.is_made:
        pytest.skip(f"the environment {name} is not made (make frameworks)")
    code = workspace / "code"
    code.mkdir()
    shutil.copy(Path(__file__).with_name("autolog.py"), code)
    job = workspace / "job.yml"
    job.write_text(f"command: {environment.python} autolog.py\ncode: code\nexperiment_name: autolog\n")
    done = subprocess.run([MUSTER, "run", str(job)], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0 and "loaded the model again" in done.stdout, done.stdout + done.stderr
    client = connect()
    run = client.run("@latest")
    assert run.metrics["training_accuracy_score"] > 0.9 and client.params(run.id)["max_iter"] == "200"
    files = {file.path for file in client.files(run.id)}
    assert {"plots/line.png", "images/black.png", "tables/t.json", "settings.yaml"} <= files
    assert any(file.endswith("/MLmodel") for file in files)
