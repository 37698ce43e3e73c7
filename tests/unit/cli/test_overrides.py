"""What the command line asks for becomes the data of a job."""

from pathlib import Path

import pytest

from muster.cli.commands.run import load
from muster.cli.overrides import Overrides, parse_env, parse_pairs, script_job, with_overrides
from muster.errors import JobError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    (tmp_path / "job.yml").write_text("command: python train.py\n")
    return tmp_path


def test_a_script_runs_in_its_own_folder(folder: Path) -> None:
    job = script_job("src/train.py", ["--epochs", "3", "$LOCAL_RANK"])
    assert job["code"] == str(folder / "src")
    assert job["command"] == ("python", "train.py", "--epochs", "3", "$LOCAL_RANK")


def test_a_program_of_the_folder_runs_when_it_may_be_executed(folder: Path) -> None:
    program = folder / "go"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(JobError, match="chmod"):
        script_job("go", [])
    program.chmod(0o755)
    assert script_job("./go", ["a"])["command"] == ("./go", "a")


def test_a_run_configuration_of_v1_is_refused_by_name(folder: Path) -> None:
    (folder / "gpu.runconfig").write_text("script: train.py\n")
    with pytest.raises(JobError, match=r"RunConfiguration\.load\('\.', 'gpu'\)") as refused:
        script_job("gpu.runconfig", [])
    assert "is a run configuration of Azure ML v1" in refused.value.message


def test_a_program_on_the_path_runs_with_the_current_folder(folder: Path) -> None:
    job = script_job("env", [])
    assert job["command"] == ("env",)
    assert job["code"] == str(folder)


def test_a_missing_script_is_refused_with_what_there_is(folder: Path) -> None:
    with pytest.raises(JobError, match=r"no file 'trian\.py'") as refused:
        script_job("trian.py", [])
    assert "job.yml" in refused.value.hint
    with pytest.raises(JobError, match=r"no file 'src/x\.py'") as refused:
        script_job("src/x.py", [])
    assert "train.py" in refused.value.hint
    with pytest.raises(JobError, match="is a folder"):
        script_job("src", [])


def test_nodes_alone_are_one_process_each_and_procs_are_per_node() -> None:
    job = {"command": "true"}
    assert with_overrides(job, Overrides()) == job
    nodes = with_overrides(job, Overrides(nodes=2))
    assert nodes["resources"] == {"instance_count": 2}
    assert nodes["distribution"] == {"type": "pytorch"}
    both = with_overrides(job, Overrides(nodes=2, procs=4, gpus_per_node=4))
    assert both["resources"] == {"instance_count": 2, "gpus_per_node": 4}
    assert both["distribution"] == {"type": "pytorch", "process_count_per_instance": 4}


def test_the_size_of_a_job_file_can_be_changed_without_changing_its_kind() -> None:
    mpi = {"command": "true", "distribution": {"type": "mpi", "process_count_per_instance": 1}}
    assert with_overrides(mpi, Overrides(procs=4))["distribution"] == {"type": "mpi", "process_count_per_instance": 4}
    tensorflow = {"command": "true", "distribution": {"type": "tensorflow", "worker_count": 2}}
    assert with_overrides(tensorflow, Overrides(nodes=3))["distribution"]["worker_count"] == 3
    with pytest.raises(JobError, match="--procs 2"):
        with_overrides(tensorflow, Overrides(procs=2))


def test_an_input_keeps_the_type_that_the_job_file_gives_it() -> None:
    job = {"command": "true", "inputs": {"epochs": 3, "rate": 0.1, "name": "a", "fast": False}}
    given = {"epochs": "10", "rate": "1", "name": "007", "fast": "true"}
    assert with_overrides(job, Overrides(inputs=given))["inputs"] == {
        "epochs": 10,
        "rate": 1.0,
        "name": "007",
        "fast": True,
    }
    for text in ("1e-3", "1E-3", "+.1e-2", "1.e-3"):  # as people write learning rates
        assert with_overrides(job, Overrides(inputs={"rate": text}))["inputs"]["rate"] == 0.001
    for name, text in [
        ("epochs", "many"),
        ("epochs", "1e3"),
        ("rate", "1e"),
        ("epochs", "1.5"),
        ("epochs", "true"),
        ("fast", "1"),
        ("rate", "x: y"),
    ]:
        with pytest.raises(JobError, match=f"--input {name}="):
            with_overrides(job, Overrides(inputs={name: text}))


def test_an_input_that_the_job_file_does_not_declare_is_refused_with_the_nearest() -> None:
    with pytest.raises(JobError) as refused:
        with_overrides({"command": "true", "inputs": {"epochs": 3}}, Overrides(inputs={"epoch": "4"}))
    assert "'epochs'" in refused.value.hint


def test_a_path_given_on_the_command_line_is_meant_from_the_current_folder(folder: Path) -> None:
    job = {"command": "true", "inputs": {"data": {"type": "uri_folder", "path": "./old"}}}
    changed = with_overrides(job, Overrides(inputs={"data": "src"}))
    assert changed["inputs"]["data"] == {"type": "uri_folder", "path": str(folder / "src")}
    remote = with_overrides(job, Overrides(inputs={"data": "azureml://datastores/a/paths/b"}))
    assert remote["inputs"]["data"]["path"] == "azureml://datastores/a/paths/b"


def test_an_input_of_a_script_is_a_path_where_there_is_one_and_a_value_else(folder: Path) -> None:
    inputs = {"data": "src", "file": "job.yml", "epochs": "3", "name": "x"}
    changed = with_overrides({"command": "true"}, Overrides(inputs=inputs), source="script")
    assert changed["inputs"] == {
        "data": {"type": "uri_folder", "path": str(folder / "src")},
        "file": {"type": "uri_file", "path": str(folder / "job.yml")},
        "epochs": 3,
        "name": "x",
    }
    typed = with_overrides({"command": "true"}, Overrides(inputs={"rate": "1e-3"}), source="script")
    assert typed["inputs"] == {"rate": "1e-3"}


def test_the_other_options_win_over_the_job_file() -> None:
    job = {
        "command": "true",
        "name": "a",
        "limits": {"timeout": 5},
        "environment_variables": {"A": "1", "B": "1"},
        "queue_settings": {"priority": "low"},
    }
    overrides = Overrides(
        name="b", experiment="e", compute="gpus", priority="high", timeout_s=60, env={"B": "2", "C": "3"}
    )
    assert with_overrides(job, overrides) == {
        "command": "true",
        "name": "b",
        "experiment_name": "e",
        "compute": "gpus",
        "limits": {"timeout": 60},
        "environment_variables": {"A": "1", "B": "2", "C": "3"},
        "queue_settings": {"priority": "high"},
    }


def test_pairs_and_variables_are_parsed() -> None:
    assert parse_pairs("--input", ["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert parse_env(["A=1", "HOME"], {"HOME": "/h"}) == {"A": "1", "HOME": "/h"}
    for bad in ("a", "=1"):
        with pytest.raises(JobError, match="NAME=VALUE"):
            parse_pairs("--input", [bad])
    with pytest.raises(JobError, match="no NOPE in this shell"):
        parse_env(["NOPE"], {})


def test_settings_reach_any_key_of_the_file() -> None:
    job = {"command": "true", "resources": {"instance_count": 4, "shm_size": "2g"}}
    given = {"resources.instance_count": "1", "tags.team": "vision", "inputs.a": "{path: x}"}
    changed = with_overrides(job, Overrides(settings=given))
    assert changed["resources"] == {"instance_count": 1, "shm_size": "2g"}
    assert changed["tags"] == {"team": "vision"}
    assert changed["inputs"] == {"a": {"path": "x"}}


@pytest.mark.parametrize("key", ["command.x", ".a", "a..b"])
def test_a_setting_that_leads_nowhere_is_refused(key: str) -> None:
    with pytest.raises(JobError, match="--set"):
        with_overrides({"command": "true"}, Overrides(settings={key: "1"}))


def test_an_environment_of_the_command_line_wins(folder: Path) -> None:
    job = {"command": "true", "environment": "azureml:<yours>"}
    assert with_overrides(job, Overrides(environment="none"))["environment"] is None
    assert with_overrides(job, Overrides(environment="pytorch"))["environment"] == "pytorch"
    (folder / "requirements.txt").write_text("numpy\n")
    found = with_overrides(job, Overrides(environment="requirements.txt"))["environment"]
    assert found == {"name": "requirements", "pip": [f"-r {folder / 'requirements.txt'}"]}


def test_what_the_command_line_says_wins_before_the_file_is_checked(folder: Path) -> None:
    (folder / "job.yml").write_text(
        "command: python train.py ${{inputs.n}}\ncode: src\ncompute: azureml:<your cluster>\n"
        "environment: azureml:<env>\ninputs: {n: {type: integer}}\n"
    )
    overrides = Overrides(compute="local", environment="none", inputs={"n": "3"})
    spec = load("job.yml", [], overrides).spec
    assert (spec.compute, spec.environment, spec.inputs["n"]) == ("local", None, 3)
    with pytest.raises(JobError, match=r"job\.yml:3: compute: ") as refused:
        load("job.yml", [], Overrides())
    assert "--compute" in refused.value.hint


def test_a_mistyped_script_or_launcher_is_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for typed, meant in (("trian.py", "train.py"), ("mpirunn", "mpirun"), ("torchrum", "torchrun")):
        with pytest.raises(JobError) as caught:
            script_job(typed, [])
        assert caught.value.hint == f"Did you mean {meant}?"
    with pytest.raises(JobError) as caught:
        script_job("other.py", [])
    assert caught.value.hint == "There are: train.py."
