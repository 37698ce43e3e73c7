"""What every JobSpec keeps to, whichever way it was made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.parts import EnvironmentSpec, Input, Mpi, Resources, TensorFlow
from muster.job.rules import head_program, is_owned_variable
from muster.job.spec import JobSpec
from muster.launch.layout import demand


def refused(**data: Any) -> str:
    with pytest.raises(JobError) as caught:
        make_spec({"command": "x", **data})
    return caught.value.message


def test_a_spec_survives_json_and_plain_data() -> None:
    spec = make_spec(
        {
            "command": ["python", "train.py", 3, 0.5],
            "inputs": {"a": 1, "b": {"path": "x"}, "c": {"type": "string", "optional": True}},
            "outputs": {"model": None},
            "distribution": {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1},
            "environment": {"image": "python", "conda_file": {"name": "x"}},
            "tags": {"n": 3},
        }
    )
    assert spec.command == ("python", "train.py", "3", "0.5")
    assert spec.tags == {"n": "3"}
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert JobSpec.model_validate(json.loads(spec.model_dump_json())) == spec
    assert make_spec(spec.model_dump()) == spec
    assert make_spec(spec.model_dump(exclude_unset=True)) == spec


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError):
        JobSpec(command="x").command = "y"


def test_a_spec_made_directly_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="RANK is set by Muster itself"):
        JobSpec(command="x", environment_variables={"RANK": "0"})


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "TF_CONFIG",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "PMIX_RANK",
        "MUSTER_RUN_ID",
        "MUSTER_ANYTHING",
        "AZUREML_RUN_ID",
        "AZ_BATCH_HOST_LIST",
    ],
)
def test_variables_that_muster_sets_are_refused(name: str) -> None:
    assert f"environment_variables.{name}: {name} is set by Muster itself" in refused(environment_variables={name: "0"})


@pytest.mark.parametrize(
    "name",
    [
        "MASTER_PORT",
        "NCCL_DEBUG",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "UCX_TLS",
        "OMPI_MCA_btl",
        "OMP_NUM_THREADS",
        "PATH",
        "CUDA_VISIBLE_DEVICES",
        "RANKS",
        "PMIC",
    ],
)
def test_other_variables_are_free(name: str) -> None:
    assert not is_owned_variable(name)
    assert make_spec({"command": "x", "environment_variables": {name: "1"}}).environment_variables == {name: "1"}


@pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "A-B", "Ä"])
def test_names_that_no_variable_can_have_are_refused(name: str) -> None:
    assert "is not the name of a variable" in refused(environment_variables={name: "1"})


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        ("local", "local"),
        ("gpus", "gpus"),
        ("azureml:gpus", "gpus"),
        ("azureml:gpus:3", "gpus"),
        ("azureml:gpus@latest", "gpus"),
    ],
)
def test_compute_is_a_name_with_or_without_azureml(compute: str, name: str) -> None:
    assert make_spec({"command": "x", "compute": compute}).compute == name


@pytest.mark.parametrize("compute", ["", "azureml:", "../x", "a b", "azureml:/subscriptions/x"])
def test_other_computes_are_refused(compute: str) -> None:
    assert "is not the name of a cluster" in refused(compute=compute)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("azureml:AzureML-PyTorch-1.6-GPU:44", "AzureML-PyTorch-1.6-GPU:44"),
        ("azureml:pytorch@latest", "pytorch@latest"),
        ("pytorch", "pytorch"),
        (
            "azureml://registries/azureml/environments/x/labels/latest",
            "azureml://registries/azureml/environments/x/labels/latest",
        ),
    ],
)
def test_environments_are_named_as_in_azure(given: str, kept: str) -> None:
    assert make_spec({"command": "x", "environment": given}).environment == kept


@pytest.mark.parametrize(
    "environment",
    [
        {"image": "python:3.11"},
        {"image": "python:3.11", "conda_file": "conda.yml"},
        {"conda_file": {"dependencies": ["python"]}},
        {"python": "3.11", "pip": ["torch"]},
        {"pip": ["torch"]},
        {"build": {"path": ".", "args": {"A": 1}}},
        {"name": "mine"},
        {"name": "mine", "image": "python"},
    ],
)
def test_an_environment_has_one_kind_of_source(environment: dict[str, Any]) -> None:
    assert isinstance(make_spec({"command": "x", "environment": environment}).environment, EnvironmentSpec)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"image": "a", "build": {"path": "."}},
        {"conda_file": "a", "pip": ["b"]},
        {"image": "a", "python": "3.11"},
        {"pip": []},
    ],
)
def test_an_environment_with_no_source_or_several_is_refused(environment: dict[str, Any]) -> None:
    assert "exactly one is needed" in refused(environment=environment)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ({"type": "integer", "default": 3}, 3),
        ({"type": "number", "default": 1, "min": 0, "max": 2}, 1),
        ({"type": "string", "default": "a", "enum": ["a", "b"]}, "a"),
        ({"type": "boolean", "default": False}, False),
        ({"type": "integer", "optional": True}, Input(type="integer", optional=True)),
    ],
)
def test_a_declared_plain_value_becomes_that_value(value: dict[str, Any], becomes: Any) -> None:
    assert make_spec({"command": "x", "inputs": {"a": value}}).inputs["a"] == becomes


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "integer"}, "inputs.a: a integer without a value"),
        ({"type": "integer", "default": 1.5}, "inputs.a.default: 1.5 is not a integer"),
        ({"type": "integer", "default": True}, "inputs.a.default: true is not a integer"),
        ({"type": "number", "default": 3, "max": 2}, "inputs.a.default: 3 is outside of what is declared (max: 2)"),
        ({"type": "string", "default": "c", "enum": ["a", "b"]}, "outside of what is declared"),
        ({"type": "number", "default": 3, "max": "x"}, "min, max or enum do not fit"),
        ({"type": "integer", "defalt": 3}, "inputs.a.defalt: unknown key; did you mean 'default'?"),
        (float("inf"), "inputs.a: inf is not a finite number"),
        (2**70, "inputs.a: a whole number of more than 64 bits"),
        ([1], "inputs.a: a list cannot become an argument"),
        (None, "inputs.a: has no value"),
        ("a\0b", "inputs.a: holds a character"),
        ("\ud800", "inputs.a: holds a character"),
    ],
)
def test_a_plain_value_that_cannot_be_passed_is_refused(value: Any, message: str) -> None:
    assert message in refused(inputs={"a": value})


def test_tensorflow_workers_set_the_number_of_nodes() -> None:
    spec = make_spec({"command": "x", "distribution": {"type": "tensorflow", "worker_count": 3}})
    assert spec.resources.instance_count == 3
    spec = JobSpec(command="x", distribution=TensorFlow(), resources=Resources(instance_count=3))
    assert spec.resources.instance_count == 3


def test_tensorflow_workers_and_nodes_must_agree() -> None:
    message = refused(distribution={"type": "tensorflow", "worker_count": 3}, resources={"instance_count": 2})
    assert "distribution.worker_count: 3 workers do not fit 2 nodes" in message
    both = make_spec(
        {
            "command": "x",
            "distribution": {"type": "tensorflow", "worker_count": 2},
            "resources": {"instance_count": 2},
        }
    )
    assert both.resources.instance_count == 2


def test_there_are_no_more_parameter_servers_than_nodes() -> None:
    message = refused(distribution={"type": "tensorflow", "worker_count": 2, "parameter_server_count": 3})
    assert "3 parameter servers do not fit 2 nodes" in message


def test_several_nodes_need_a_distribution() -> None:
    assert "without `distribution` only one process runs" in refused(resources={"instance_count": 2})


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 4 python train.py",
        "OMP_NUM_THREADS=1 mpiexec python train.py",
        "/usr/bin/horovodrun -np 2 python x.py",
        "exec deepspeed train.py",
        ["mpirun", "python", "x.py"],
    ],
)
def test_launchers_of_their_own_are_refused_in_mpi_jobs(command: Any) -> None:
    assert "in an MPI job Muster starts the processes" in refused(command=command, distribution={"type": "mpi"})
    make_spec({"command": command})


def test_the_deepspeed_launcher_runs_on_one_node_only() -> None:
    make_spec({"command": "deepspeed train.py", "distribution": {"type": "pytorch"}})
    message = refused(command="deepspeed train.py", distribution={"type": "pytorch"}, resources={"instance_count": 2})
    assert "over ssh by itself" in message


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python x.py", "python"),
        ("  A=1 B='2 3' env mpirun x", "mpirun"),
        ("# mpirun", ""),
        ("'unbalanced", ""),
        ("echo mpirun", "echo"),
        (("/opt/bin/mpirun",), "mpirun"),
    ],
)
def test_the_program_at_the_head_of_a_command_is_found(command: Any, program: str) -> None:
    assert head_program(command) == program


@pytest.mark.parametrize("size", ["2g", "512m", "64K", "1073741824", "100b"])
def test_sizes_of_shared_memory(size: str) -> None:
    assert Resources(shm_size=size).shm_size == size


@pytest.mark.parametrize("size", ["", "0", "0g", "-1g", "2gb", "1.5g", "g", " 2g"])
def test_other_sizes_are_refused(size: str) -> None:
    assert "is not a size" in refused(resources={"shm_size": size})


@pytest.mark.parametrize("path", ["/abs", "../x", "a/../../x", "~/x"])
def test_outputs_cannot_escape(path: str) -> None:
    assert "leaves the working folder" in refused(outputs={"m": {"path": path}})


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "9", "x" * 255])
def test_names_of_runs(name: str) -> None:
    assert make_spec({"command": "x", "name": name}).name == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "x" * 256, "é", "a\n"])
def test_other_names_of_runs_are_refused(name: str) -> None:
    assert "is not a name" in refused(name=name)


def test_a_command_too_long_for_one_argument_is_refused() -> None:
    assert "100,001 bytes; at most 100,000 fit" in refused(command="x" * 100_001)


def test_types_of_distributions_may_be_written_in_any_case() -> None:
    spec = make_spec({"command": "x", "distribution": {"type": "MPI", "process_count_per_instance": 2}})
    assert spec.distribution == Mpi(process_count_per_instance=2)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ({"type": "number", "default": "1e-3", "min": "1e-5"}, 0.001),
        ({"type": "integer", "default": "3", "enum": ["3", 4]}, 3),
        ({"type": "string", "default": 0.5}, "0.5"),
        ({"type": "boolean", "default": "True"}, True),
    ],
)
def test_a_default_is_read_as_its_type_says(declared: dict[str, Any], value: object) -> None:
    """YAML reads `1e-3` as text."""
    assert make_spec({"command": "echo ${{inputs.a}}", "inputs": {"a": declared}}).inputs["a"] == value


@pytest.mark.parametrize(
    ("given", "whole", "share"), [(0, 0, 1.0), (2, 2, 1.0), (1.0, 1, 1.0), (0.25, 1, 0.25), (0.0625, 1, 0.0625)]
)
def test_gpus_are_whole_or_a_part_of_one(given: float, whole: int, share: float) -> None:
    spec = make_spec({"command": "true", "resources": {"gpus_per_node": given}})
    assert (spec.resources.whole_gpus, spec.resources.gpu_share) == (whole, share)
    again = make_spec(json.loads(spec.model_dump_json()))
    assert again == spec and (demand(spec).gpus_per_node, demand(spec).gpu_share) == (whole, share)


@pytest.mark.parametrize(
    ("given", "said"), [(1.5, "neither a whole number nor a part"), (0.001, "neither"), (-1, "out of range")]
)
def test_other_numbers_of_gpus_are_refused(given: float, said: str) -> None:
    with pytest.raises(JobError, match=rf"resources\.gpus_per_node: {given:g} is {said}"):
        make_spec({"command": "true", "resources": {"gpus_per_node": given}})
