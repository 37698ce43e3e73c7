"""Files as Azure ML writes them: what they say in other words, components, environments in files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.azure import settle
from muster.job.environmentfile import environment_of
from muster.job.jobfile import load_job_file, parse_job
from muster.job.parts import EnvironmentSpec, Input, Service

COMPONENT = """\
$schema: https://example.com/commandComponent.schema.json
type: command
name: train_model
version: 3
is_deterministic: false
inputs:
  training_data: {type: uri_folder, description: images}
  epochs: {type: integer, default: 2, min: 1}
  lr: {type: number, optional: true}
outputs:
  model: {type: mlflow_model}
command: >-
  python train.py --data ${{inputs.training_data}} --epochs ${{inputs.epochs}} $[[--lr ${{inputs.lr}}]]
  --out ${{outputs.model}}
"""


def test_a_component_is_a_job_whose_name_is_a_title() -> None:
    text = COMPONENT.replace("description: images", "path: ./images")
    job = parse_job(text)
    assert job.notices == ()
    assert (job.spec.name, job.spec.display_name) == (None, "train_model")
    assert job.spec.inputs["epochs"] == 2


def test_an_input_that_a_component_lacks_is_asked_for_by_its_option() -> None:
    with pytest.raises(JobError, match=r"inputs\.training_data: has no path") as refused:
        parse_job(COMPONENT)
    assert "--input NAME=PATH" in refused.value.hint


def test_modes_and_places_of_azure_have_a_name_here() -> None:
    job = parse_job(
        "command: x\n"
        "inputs:\n  a: {path: file:./x, mode: eval_mount}\n  b: {datastore: azureml:blob, path: /y}\n"
        "outputs: {o: {mode: mount}}\n"
        "resources: {docker_args: [--memory 8g, --cpus 4]}\n"
        "queue_settings: {job_tier: Spot}\n"
    )
    assert job.spec.inputs["a"] == Input(path="./x", mode="ro_mount")
    assert job.spec.inputs["b"] == Input(path="azureml://datastores/blob/paths/y")
    assert job.spec.outputs["o"].mode == "rw_mount"
    assert job.spec.resources.container_args == ("--memory", "8g", "--cpus", "4")
    assert job.spec.queue_settings.preemptible is True


def test_services_of_every_spelling() -> None:
    job = parse_job(
        "command: x\nservices:\n"
        "  tb: {job_service_type: tensor_board, properties: {logDir: outputs/tb}}\n"
        "  lab: {type: jupyter_lab, nodes: all}\n"
        "  own: {type: custom, port: 8080}\n"
    )
    assert job.spec.services == {
        "tb": Service(type="tensor_board", log_dir="outputs/tb"),
        "lab": Service(type="jupyter_lab"),
        "own": Service(type="custom", port=8080),
    }
    assert "services.lab.nodes" in job.notices[0]


def test_what_is_not_understood_is_left_for_the_models_to_refuse() -> None:
    odd = {"command": "x", "inputs": 3, "services": [], "queue_settings": None, "outputs": {"a": 5}, "resources": "no"}
    assert settle(odd).data == odd


def test_an_environment_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "env.yml").write_text("name: mine\nversion: 1\nimage: ubuntu\nconda_file: conda.yml\n")
    (tmp_path / "envs" / "conda.yml").write_text("dependencies: [python=3.11]\n")
    (tmp_path / "job.yml").write_text("command: x\nenvironment: file:envs/env.yml\n")
    environment = load_job_file(tmp_path / "job.yml").spec.environment
    conda = str(tmp_path / "envs" / "conda.yml")
    assert environment == EnvironmentSpec(name="mine", image="ubuntu", conda_file=conda)
    assert environment_of(tmp_path / "envs" / "conda.yml") == {"name": "conda", "conda_file": conda}
    assert environment_of(tmp_path / "job.yml") == environment_of(tmp_path / "envs" / "env.yml")


def test_requirements_and_dockerfiles_are_environments(tmp_path: Path) -> None:
    requirements, dockerfile = tmp_path / "requirements.txt", tmp_path / "Dockerfile"
    requirements.write_text("numpy\n")
    dockerfile.write_text("FROM ubuntu\n")
    assert environment_of(requirements) == {"name": "requirements", "pip": [f"-r {requirements}"]}
    assert environment_of(dockerfile)["build"] == {"path": str(tmp_path), "dockerfile_path": "Dockerfile"}  # type: ignore[index,call-overload]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"- a\n", b"a: [\n", b""])
def test_a_file_that_is_no_environment_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "env.yml").write_bytes(content)
    with pytest.raises(JobError):
        environment_of(tmp_path / "env.yml")


def test_an_editor_of_azure_is_left_out_and_other_services_stay() -> None:
    text = "command: x\nservices:\n  editor: {type: vs_code, nodes: all}\n  board: {type: tensor_board}\n"
    job = parse_job(text)
    assert list(job.spec.services) == ["board"]
    assert len(job.notices) == 1 and "services.editor (an editor that Azure starts" in job.notices[0]


def test_arguments_of_containers_that_muster_decides_are_left_out() -> None:
    text = (
        "command: x\nresources: {docker_args: '--ipc=host --shm-size 8g --memory=4g --gpus all --cap-add IPC_LOCK'}\n"
    )
    job = parse_job(text)
    assert (job.spec.resources.docker_args, job.spec.resources.shm_size) == ("--memory=4g", "8g")
    assert "resources.docker_args (--ipc=host --gpus all --cap-add IPC_LOCK: Muster" in job.notices[0]
    with pytest.raises(JobError, match="'-v' is not among the arguments"):
        parse_job("command: x\nresources: {docker_args: '-v /:/host'}\n")


def test_files_of_the_preview_are_understood() -> None:
    job = parse_job(
        "command: x\ncode: {local_path: src}\ncompute: {target: azureml:big, instance_count: 2}\n"
        "distribution: {type: pytorch}\nenvironment: {docker: {image: python}}\n"
    ).spec
    assert (job.code, job.compute, job.resources.instance_count) == ("src", "big", 2)
    assert isinstance(job.environment, EnvironmentSpec) and job.environment.image == "python"


def test_a_node_for_each_parameter_server_is_not_held() -> None:
    text = (
        "command: python train.py\nresources: {{instance_count: {nodes}}}\n"
        "distribution: {{type: TensorFlow, worker_count: 2, parameter_server_count: 1}}\n"
    )
    loaded = parse_job(text.format(nodes=3))
    assert loaded.spec.resources.instance_count == 2
    assert "resources.instance_count (parameter servers share the nodes of workers, so 2 are held" in loaded.notices[0]
    assert parse_job(text.format(nodes=2)).notices == ()
    with pytest.raises(JobError, match="2 workers do not fit 4 nodes"):
        parse_job(text.format(nodes=4))
