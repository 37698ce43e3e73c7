"""Azure ML's v2 Python: what a script says becomes the job of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.jobfile import parse_job
from muster.job.parts import Build, EnvironmentSpec
from muster.ml import Input, MpiDistribution, Output, command, load_component, load_environment, load_job
from muster.ml.entities import BuildContext, Environment, SshJobService, TensorBoardJobService, VsCodeJobService

FILE = """\
code: ./src
command: python train.py --data ${{inputs.images}} --epochs ${{inputs.epochs}} --out ${{outputs.model}}
environment: azureml:AzureML-pytorch-1.10@latest
compute: azureml:gpus
resources: {instance_count: 2, shm_size: 2g}
distribution: {type: mpi, process_count_per_instance: 4}
inputs:
  images: {type: uri_folder, path: azureml://datastores/blob/paths/images, mode: ro_mount}
  epochs: 3
outputs: {model: {type: uri_folder, mode: rw_mount}}
limits: {timeout: 60}
tags: {team: vision}
"""


def test_a_command_says_the_same_as_a_file() -> None:
    job = command(
        code="./src",
        command="python train.py --data ${{inputs.images}} --epochs ${{inputs.epochs}} --out ${{outputs.model}}",
        environment="azureml:AzureML-pytorch-1.10@latest",
        compute="azureml:gpus",
        instance_count=2,
        shm_size="2g",
        distribution=MpiDistribution(process_count_per_instance=4),
        inputs={
            "images": Input(type="uri_folder", path="azureml://datastores/blob/paths/images", mode="ro_mount"),
            "epochs": 3,
        },
        outputs={"model": Output(type="uri_folder", mode="rw_mount")},
        timeout=60,
        tags={"team": "vision"},
    )
    assert job.checked().spec == parse_job(FILE).spec


def test_a_job_can_be_changed_until_it_is_submitted() -> None:
    job = command(command="true", distribution={"type": "PyTorch", "process_count_per_instance": 1})
    job.compute = "local"
    job.set_resources(instance_count=2)
    job.set_limits(timeout=9)
    job.environment_variables = {"A": "1"}
    spec = job.checked().spec
    assert (spec.resources.instance_count, spec.limits.timeout, spec.environment_variables) == (2, 9, {"A": "1"})
    with pytest.raises(AttributeError, match="a job has no 'nothing'; it has "):
        job.nothing  # noqa: B018
    assert (job.environment, job.type) == (None, "command")


def test_parts_of_a_job_are_attributes_that_can_be_changed(tmp_path: Path) -> None:
    job = command(command="echo ${{inputs.lr}} > ${{outputs.model}}/x", inputs={"lr": 0.1}, outputs={"model": Output()})
    job.inputs.lr = 0.2
    job.outputs.model.mode = "upload"
    job.environment_variables["A"] = "1"
    job.tags.update(team="vision")
    job.resources.shm_size = "1g"
    job.limits.timeout = 9
    spec = job.checked().spec
    assert (spec.inputs["lr"], spec.environment_variables, spec.tags) == (0.2, {"A": "1"}, {"team": "vision"})
    assert (spec.resources.shm_size, spec.limits.timeout, spec.outputs["model"].mode) == ("1g", 9, "upload")
    with pytest.raises(AttributeError, match="there is no 'rate' here; there are: lr"):
        job.inputs.rate  # noqa: B018
    job.dump(tmp_path / "job.yml")
    assert parse_job((tmp_path / "job.yml").read_text()).spec == spec


def test_what_was_only_looked_at_is_not_said() -> None:
    job = command(command="true", parent_job_name="other", max_instance_count=2, version="1")
    assert not job.queue_settings and not job.services
    assert job.checked().spec == parse_job("command: 'true'").spec
    with pytest.raises(JobError, match="no sweeps yet"):
        job.sweep(primary_metric="loss")


def test_environments_and_services_are_described(tmp_path: Path) -> None:
    job = command(
        command="true",
        environment=Environment(image="ubuntu", conda_file=tmp_path / "conda.yml", description="x"),
        services={
            "tb": TensorBoardJobService(log_dir="outputs"),
            "door": SshJobService(ssh_public_keys="ssh-ed25519 A"),
        },
        identity={"type": "managed"},
    )
    loaded = job.checked()
    assert loaded.spec.environment == EnvironmentSpec(image="ubuntu", conda_file=str(tmp_path / "conda.yml"))
    assert loaded.spec.services["tb"].log_dir == "outputs"
    assert "identity" in loaded.notices[0]
    edited = command(command="true", services={"code": VsCodeJobService()}).checked()
    assert not edited.spec.services and "services.code (an editor" in edited.notices[0]
    built = command(command="true", environment=Environment(build=BuildContext(path="./docker")))
    assert built.checked().spec.environment == EnvironmentSpec(build=Build(path="./docker"))


def test_a_wrong_argument_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="comput"):
        command(command="true", comput="x")
    with pytest.raises(JobError, match="is out of range"):
        command(command="true", instance_count=0).checked()


def test_files_are_read_with_what_wins_over_them(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(FILE)
    job = load_job(tmp_path / "job.yml", params_override=[{"resources.instance_count": 1}, {"compute": "local"}])
    assert job.checked().spec.resources.instance_count == 1
    assert job.checked().spec.compute == "local"
    assert job.checked().base_dir == tmp_path


def test_a_component_is_called_with_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "train.yml").write_text(
        "$schema: commandComponent.schema.json\nname: train\nversion: 1\n"
        "inputs:\n  data: {type: uri_folder}\n  epochs: {type: integer, default: 1, max: 5}\n"
        "command: python train.py ${{inputs.data}} ${{inputs.epochs}}\n"
    )
    train = load_component(source=str(tmp_path / "train.yml"))
    spec = train(data=Input(type="uri_folder", path="./images"), epochs=3).checked().spec
    assert spec.inputs["epochs"] == 3
    with pytest.raises(JobError, match="has no input 'epoch'"):
        train(epoch=3)
    with pytest.raises(JobError, match="outside of what is declared"):
        train(data="x", epochs=9).checked()
    with pytest.raises(JobError, match="has no path"):
        train(epochs=3).checked()


def test_an_environment_file_is_an_environment(tmp_path: Path) -> None:
    (tmp_path / "env.yml").write_text("name: mine\nimage: ubuntu\n")
    environment = load_environment(tmp_path / "env.yml")
    assert command(command="true", environment=environment).checked().spec.environment == EnvironmentSpec(
        name="mine", image="ubuntu"
    )
