"""MLflow's own clients against Muster's server: outside of runs, and in the ranks of one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import MUSTER

from muster.client.connect import connect
from muster.sdk.workspace import Workspace

SCRIPTS = Path(__file__).parent / "scripts"


def test_a_client_outside_a_run_can_do_what_it_does_with_its_own_server(workspace: Path, mlflow_python: Path) -> None:
    done = subprocess.run(
        [MUSTER, "mlflow", "--", str(mlflow_python), str(SCRIPTS / "outside.py")],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0 and "worked" in done.stdout, done.stdout + done.stderr
    (run,) = [run for run in connect().runs() if run.display_name == "first"]
    assert (run.status, run.experiment, run.metrics["loss"]) == ("Completed", "client-tests", 0.2)
    assert "notes/hello.txt" in [file.path for file in run.files]
    refused = subprocess.run(
        [MUSTER, "mlflow", "--", "env", "-u", "MLFLOW_TRACKING_TOKEN", str(mlflow_python), "-c",
         "import mlflow; mlflow.search_experiments()"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert refused.returncode != 0 and "token" in refused.stderr


def test_a_script_that_asks_its_workspace_for_the_address_logs_into_it(
    workspace: Path, mlflow_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As notebooks have it: `mlflow.set_tracking_uri(ws.get_mlflow_tracking_uri())`."""
    # Put back when the test ends: the call sets the token in this process.
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")
    address = Workspace.from_config().get_mlflow_tracking_uri()
    code = (
        f"import mlflow; mlflow.set_tracking_uri({address!r}); mlflow.set_experiment('asked')\n"
        "with mlflow.start_run(): mlflow.log_metric('loss', 0.5)"
    )
    done = subprocess.run([str(mlflow_python), "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = connect().run("@latest")
    assert run.metrics["loss"] == 0.5 and run.experiment == "asked" and not (workspace / "mlruns").exists()


def test_what_ranks_log_is_the_runs_own(workspace: Path, mlflow_python: Path) -> None:
    code = workspace / "code"
    code.mkdir()
    shutil.copy(SCRIPTS / "rank.py", code)
    job = workspace / "job.yml"
    job.write_text(
        f"command: {mlflow_python} rank.py\ncode: code\nexperiment_name: mine\n"
        "distribution: {type: pytorch, process_count_per_instance: 2}\n"
    )
    done = subprocess.run([MUSTER, "run", str(job)], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    client = connect()
    run = client.run("@latest")
    assert (run.status, run.experiment) == ("Completed", "mine")
    assert [client.params(run.id), run.tags] == [{"lr": "0.1"}, {"rank_0": "was here", "rank_1": "was here"}]
    series = {(item.name, item.rank): item for item in client.metric_series(run.id)}
    for rank in (0, 1):
        found = series[f"loss_{rank}", rank]
        assert (found.values, found.steps) == (tuple(1.0 / (s + 1) for s in range(20)), tuple(map(float, range(20))))
    assert (run.metrics["bad"], run.metrics["after_the_end"]) == ("NaN", 1.0)
    names = {file.path for file in client.files(run.id)}
    assert {"notes/rank_0.txt", "notes/rank_1.txt"} <= names and any(name.endswith("/MLmodel") for name in names)
    assert [(model.name, model.version, model.run_id) for model in client.models()] == [("doubler", 1, run.id)]


@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_a_store_of_its_own_is_brought_in(workspace: Path, mlflow_python: Path, kind: str) -> None:
    """As MLflow itself wrote it."""
    folder = workspace / "old"
    folder.mkdir()
    uri = f"sqlite:///{folder}/mlflow.db" if kind == "sqlite" else str(folder / "mlruns")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "MLFLOW_ALLOW_FILE_STORE": "true"}
    written = subprocess.run(
        [str(mlflow_python), str(SCRIPTS / "store.py")],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert written.returncode == 0, written.stdout + written.stderr
    given = uri if kind == "sqlite" else str(folder)
    for brought, known in ((2, 0), (0, 2)):
        done = subprocess.run(
            [MUSTER, "import", "mlflow", given], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{brought} run" in done.stdout + done.stderr and (not known or f"{known} " in done.stdout + done.stderr)
    client = connect()
    runs = {run.display_name: run for run in client.runs()}
    assert {name: run.status for name, run in runs.items()} == {"kept": "Completed", "broken": "Failed"}
    kept = runs["kept"]
    assert (kept.experiment, client.params(kept.id)) == ("old", {"lr": "0.1"})
    series = {item.name: item for item in client.metric_series(kept.id)}
    assert series["loss"].values == (1.0, 0.5, 0.25) and series["loss"].steps == (0.0, 1.0, 2.0)
    assert kept.metrics["bad"] == "NaN" and kept.tags["team"] == "vision"
    assert "notes/hello.txt" in {file.path for file in client.files(kept.id)}
