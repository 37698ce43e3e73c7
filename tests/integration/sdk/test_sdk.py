"""A v1 script, with `azureml.core` replaced by `muster`, against the real thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster import Experiment, Model, Run, RunFailed, ScriptRunConfig, Workspace, as_completed
from muster.runconfig import PyTorchConfiguration

TRAIN = """
import argparse, os
from muster import Run
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
run = Run.get_context()
for epoch in range(args.epochs):
    if os.environ["RANK"] == "0":
        run.log("loss", 1 / (epoch + 1), step=epoch)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "local", args.local_rank)
os.makedirs("outputs/model", exist_ok=True)
if os.environ["RANK"] == "0":
    open("outputs/model/weights.txt", "w").write("w")
    run.upload_file("uploaded.txt", __file__)
    run.tag("kind", "test")
"""
FAIL = "import sys\nprint('before')\nraise ValueError('the data is bad')\n"


@pytest.fixture
def ws(workspace: Path) -> Workspace:
    (workspace / "src").mkdir()
    (workspace / "src/train.py").write_text(TRAIN)
    (workspace / "src/fail.py").write_text(FAIL)
    return Workspace.from_config()


def test_a_v1_script_runs_from_submission_to_download(
    ws: Workspace, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ScriptRunConfig(
        source_directory="./src",
        script="train.py",
        arguments=["--epochs", 3, "--local_rank", "$LOCAL_RANK"],
        compute_target="local",
        distributed_job_config=PyTorchConfiguration("Gloo", process_count=2, node_count=1),
    )
    run = Experiment(ws, "experiment_name").submit(config)
    run.wait_for_completion(show_output=True)
    assert run.get_status() == "Completed"
    shown = capsys.readouterr().out
    assert "[rank 0] rank 0 of 2 local 0\n" in shown
    assert "[rank 1] rank 1 of 2 local 1\n" in shown
    assert run.get_metrics("loss") == {"loss": [1, 1 / 2, 1 / 3]}
    assert run.get_tags()["kind"] == "test"
    assert {"outputs/model/weights.txt", "uploaded.txt"} <= set(run.get_file_names())
    run.download_files("outputs/", str(workspace / "down"))
    assert (workspace / "down/outputs/model/weights.txt").read_text() == "w"
    model = run.register_model("resnet", "outputs/model")
    assert Path(model.download(str(workspace / "models"))).joinpath("weights.txt").read_text() == "w"
    assert [found.id for found in ws.experiments["experiment_name"].get_runs()] == [run.id]
    assert Run.get(ws, "@latest") == run


def test_a_failed_run_raises_its_verdict(ws: Workspace) -> None:
    run = Experiment(ws, "e").submit(ScriptRunConfig("./src", script="fail.py"))
    with pytest.raises(RunFailed) as caught:
        run.wait_for_completion()
    assert "the data is bad" in str(caught.value)
    assert caught.value.verdict["code"] == "exception"


def test_runs_feel_like_futures(ws: Workspace) -> None:
    experiment = Experiment(ws, "e")
    runs = [experiment.submit(ScriptRunConfig("./src", command=["true"])) for _ in range(3)]
    assert {run.id for run in as_completed(runs, timeout=60)} == {run.id for run in runs}
    assert runs[0].result().done()


def test_a_cancelled_run_ends_as_canceled(ws: Workspace) -> None:
    run = Experiment(ws, "e").submit(ScriptRunConfig("./src", command=["sleep", "600"]))
    run.cancel()
    assert isinstance(run.exception(timeout=60), RunFailed)
    assert run.cancelled()


def test_a_local_model_is_kept_in_the_workspace(ws: Workspace, workspace: Path) -> None:
    (workspace / "m").mkdir()
    (workspace / "m/weights.bin").write_bytes(b"\0" * 100_000)
    (workspace / "one.pt").write_bytes(b"1")
    folder, file = Model.register(ws, "m", "folder"), Model.register(ws, "one.pt", "file")
    assert Path(folder.download("out")).joinpath("weights.bin").stat().st_size == 100_000
    assert Path(Model(ws, "file").download("out")).read_bytes() == b"1"
    assert [model.id for model in Model.list(ws)] == ["file:1", "folder:1"]
    assert file.version == 1


def test_metrics_and_files_can_be_added_from_outside(ws: Workspace, workspace: Path) -> None:
    run = Experiment(ws, "e").submit(ScriptRunConfig("./src", command=["true"]))
    run.result(timeout=60)
    run.log("score", float("nan"))
    run.upload_file("notes.txt", str(workspace / "src/fail.py"))
    assert run.get_metrics("score")["score"] != run.get_metrics("score")["score"]
    assert "notes.txt" in run.get_file_names()
    run.download_file("notes.txt", str(workspace / "notes.txt"))
    assert (workspace / "notes.txt").read_text() == FAIL
