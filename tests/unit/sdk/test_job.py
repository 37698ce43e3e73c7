"""Every shape of a v1 configuration becomes the right job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.errors import JobError, NotFound
from muster.job.parts import Input, Mpi, PyTorch, TensorFlow
from muster.sdk.conda import CondaDependencies
from muster.sdk.data.dataset import Dataset, OutputFileDatasetConfig
from muster.sdk.data.datastore import DataReference, Datastore
from muster.sdk.environment import Environment, from_spec, to_spec
from muster.sdk.job import to_job
from muster.sdk.runconfig import (
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
)


def config(**changes: Any) -> ScriptRunConfig:
    return ScriptRunConfig(**{"source_directory": "./src", "script": "train.py", **changes})


def test_per_process_the_total_is_shared_over_the_nodes() -> None:
    spec, _ = to_job(
        config(
            arguments=["--epochs", 50, "--local_rank", "$LOCAL_RANK"],
            compute_target="local",
            distributed_job_config=PyTorchConfiguration(process_count=8, node_count=2),
        ),
        "experiment_name",
    )
    assert spec.command == ("python", "train.py", "--epochs", "50", "--local_rank", "$LOCAL_RANK")
    assert spec.distribution == PyTorch(process_count_per_instance=4, communication_backend="nccl")
    assert spec.resources.instance_count == 2
    assert (spec.experiment_name, spec.code, spec.compute) == ("experiment_name", "./src", "local")
    assert spec.limits.timeout == 2_592_000


def test_a_data_reference_is_an_input_of_its_name_and_in_a_text_the_path_that_a_rank_has() -> None:
    store = cast(Datastore, SimpleNamespace(name="blobs", workspace=None))
    reference = DataReference(datastore=store, data_reference_name="flowers", path_on_datastore="a/b", mode="download")
    run_config = RunConfiguration()
    run_config.data_references = {reference.data_reference_name: reference.to_config()}
    spec, _ = to_job(config(arguments=["--data", str(reference)], run_config=run_config), "e")
    assert spec.command == ("python", "train.py", "--data", "$AZURE_ML_INPUT_flowers")
    assert (spec.inputs["flowers"].path, spec.inputs["flowers"].mode) == (
        "azureml://datastores/blobs/paths/a/b",
        "download",
    )
    spec, _ = to_job(config(arguments=["--data", reference.as_mount()]), "e")
    assert spec.command[-1] == "${{inputs.flowers}}" and spec.inputs["flowers"].mode == "ro_mount"
    with pytest.raises(JobError, match="mode='upload'"):
        DataReference(store, "flowers", mode="upload")


@pytest.mark.parametrize("command", [["echo one && echo two"], ["echo", "one", "&&", "echo", "two"]])
def test_a_command_list_is_joined_and_left_to_a_shell(command: list[str]) -> None:
    spec, _ = to_job(config(script=None, command=command), "e")
    assert spec.command == "echo one && echo two"


def test_data_in_a_command_list_becomes_an_input() -> None:
    data = Dataset.File.from_files("/data/images", validate=False).as_named_input("images").as_mount()
    spec, _ = to_job(config(script=None, command=["ls", data, "|", "wc", "-l"]), "e")
    assert spec.command == "ls ${{inputs.images}} | wc -l"
    assert set(spec.inputs) == {"images"}


def test_per_node_a_command_list_runs_once_on_each_node() -> None:
    launcher = "python -m torch.distributed.launch --nproc_per_node 4 --nnodes 2 --node_rank $NODE_RANK"
    rendezvous = "--master_addr $MASTER_ADDR --master_port $MASTER_PORT --use_env train.py --epochs 50"
    command = [*launcher.split(" "), *rendezvous.split(" ")]
    spec, _ = to_job(
        config(script=None, command=command, distributed_job_config=PyTorchConfiguration(node_count=2)), "e"
    )
    assert spec.command == " ".join(command)
    assert spec.distribution == PyTorch(process_count_per_instance=None, communication_backend="nccl")
    assert spec.resources.instance_count == 2


def test_per_node_a_command_text_stays_text() -> None:
    spec, _ = to_job(config(script=None, command="torchrun --nnodes 2 train.py | tee log"), "e")
    assert spec.command == "torchrun --nnodes 2 train.py | tee log"


def test_one_node_with_a_launcher_of_its_own_has_no_distribution() -> None:
    spec, _ = to_job(config(script=None, command=["torchrun", "--nproc-per-node", "4", "train.py"]), "e")
    assert spec.distribution is None
    assert spec.resources.instance_count == 1


def test_lightning_is_one_process_a_node() -> None:
    arguments = ["--max_epochs", 50, "--num_nodes", 2, "--devices", 2]
    spec, _ = to_job(config(arguments=arguments, distributed_job_config=PyTorchConfiguration(node_count=2)), "e")
    assert spec.command[-1] == "2"
    assert spec.distribution == PyTorch(communication_backend="nccl")


def test_mpi_counts_processes_per_node() -> None:
    spec, _ = to_job(config(distributed_job_config=MpiConfiguration(process_count_per_node=4, node_count=2)), "e")
    assert spec.distribution == Mpi(process_count_per_instance=4)
    assert spec.resources.instance_count == 2


def test_tensorflow_counts_workers_and_parameter_servers() -> None:
    wanted = TensorflowConfiguration(worker_count=2, parameter_server_count=0)
    spec, _ = to_job(config(distributed_job_config=wanted), "e")
    assert spec.distribution == TensorFlow(worker_count=2, parameter_server_count=0)
    assert spec.resources.instance_count == 2


def test_the_v1_defaults_of_the_configurations() -> None:
    assert vars(MpiConfiguration()) == {"process_count_per_node": 1, "node_count": 1}
    assert vars(PyTorchConfiguration()) == {"communication_backend": "Nccl", "process_count": None, "node_count": 1}
    added = {"chief": False, "evaluator": False}
    assert vars(TensorflowConfiguration()) == {"worker_count": 1, "parameter_server_count": 1, **added}


@pytest.mark.parametrize(("total", "nodes", "fitting"), [(5, 2, "4 or 6"), (1, 2, "use 2"), (7, 4, "4 or 8")])
def test_a_total_that_does_not_divide_is_refused_with_totals_that_do(total: int, nodes: int, fitting: str) -> None:
    wanted = PyTorchConfiguration(process_count=total, node_count=nodes)
    with pytest.raises(JobError, match=f"process_count={total} does not divide") as caught:
        to_job(config(distributed_job_config=wanted), "e")
    assert fitting in caught.value.hint


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_counts_are_whole_and_positive(count: Any) -> None:
    for wanted in (
        PyTorchConfiguration(process_count=count),
        PyTorchConfiguration(node_count=count),
        MpiConfiguration(node_count=count),
        MpiConfiguration(process_count_per_node=count),
        TensorflowConfiguration(worker_count=count),
    ):
        with pytest.raises(JobError, match="is not a count"):
            to_job(config(distributed_job_config=wanted), "e")


def test_script_and_command_exclude_each_other() -> None:
    with pytest.raises(JobError, match="both script"):
        to_job(config(command=["ls"]), "e")
    with pytest.raises(JobError, match="neither script nor command"):
        to_job(config(script=None), "e")
    with pytest.raises(JobError, match="belong to `script`"):
        to_job(config(script=None, command=["ls"], arguments=["-l"]), "e")


def test_an_argument_text_is_refused_with_the_list_that_was_meant() -> None:
    with pytest.raises(JobError) as caught:
        to_job(config(arguments="--epochs 50"), "e")
    assert "['--epochs', '50']" in caught.value.hint


def test_numbers_become_text_and_an_element_with_spaces_stays_one() -> None:
    spec, _ = to_job(config(arguments=[1, 0.1, True, Path("a/b"), "two words"]), "e")
    assert spec.command[2:] == ("1", "0.1", "True", "a/b", "two words")


def test_what_cannot_be_an_argument_is_refused() -> None:
    with pytest.raises(JobError, match="NoneType"):
        to_job(config(arguments=["--x", None]), "e")


def test_datasets_in_arguments_become_inputs(tmp_path: Path) -> None:
    (tmp_path / "one.csv").touch()
    images = Dataset.File.from_files(path=f"{tmp_path}/**").as_named_input("images").as_download()
    table = Dataset.File.from_files(str(tmp_path / "one.csv")).as_mount()
    spec, _ = to_job(config(arguments=["--data", images, "--table", table]), "e")
    assert spec.command[2:] == ("--data", "${{inputs.images}}", "--table", "${{inputs.input_1}}")
    assert spec.inputs == {
        "images": Input(type="uri_folder", path=str(tmp_path), mode="download"),
        "input_1": Input(type="uri_file", path=str(tmp_path / "one.csv"), mode="ro_mount"),
    }


def test_the_place_to_resume_from_is_passed_as_v1_does(tmp_path: Path) -> None:
    spec, _ = to_job(config(resume_from=str(tmp_path)), "e")
    assert spec.command[-2:] == ("--resume-from", "${{inputs.resume_from}}")
    assert spec.inputs["resume_from"] == Input(path=str(tmp_path))
    with pytest.raises(JobError, match="cannot be resumed from"):
        to_job(config(resume_from=object()), "e")


def test_an_absolute_script_inside_the_folder_is_made_relative(tmp_path: Path) -> None:
    spec, _ = to_job(ScriptRunConfig(str(tmp_path), script=str(tmp_path / "sub/train.py")), "e")
    assert spec.command[1] == "sub/train.py"
    with pytest.raises(JobError, match="is not in the source_directory"):
        to_job(config(script="/elsewhere/train.py"), "e")


def test_settings_of_a_run_configuration_are_used() -> None:
    run_config = RunConfiguration(script="train.py", arguments=["--x"], framework="PyTorch", communicator="Nccl")
    run_config.target = "gpus"
    run_config.node_count = 2
    run_config.environment_variables["OMP_NUM_THREADS"] = "1"
    run_config.max_run_duration_seconds = 60
    spec, _ = to_job(ScriptRunConfig("./src", run_config=run_config), "e")
    assert spec.command == ("python", "train.py", "--x")
    assert (spec.compute, spec.resources.instance_count, spec.limits.timeout) == ("gpus", 2, 60)
    assert spec.environment_variables == {"OMP_NUM_THREADS": "1"}
    assert isinstance(spec.distribution, PyTorch)
    # v1's fourth argument.
    assert to_job(ScriptRunConfig("./src", None, None, run_config), "e")[0] == spec


def test_changes_to_a_configs_run_config_after_its_making_count() -> None:
    made = config(compute_target="local")
    made.run_config.target = "other"
    assert to_job(made, "e")[0].compute == "other"


@pytest.mark.parametrize("communicator", ["OpenMpi", "IntelMpi", "Mpi"])
def test_an_mpi_communicator_means_mpi(communicator: str) -> None:
    run_config = RunConfiguration(script="t.py", communicator=communicator)
    run_config.node_count = 3
    run_config.mpi.process_count_per_node = 2
    spec, _ = to_job(ScriptRunConfig("./src", run_config=run_config), "e")
    assert spec.distribution == Mpi(process_count_per_instance=2)
    assert spec.resources.instance_count == 3


def test_a_variable_that_muster_owns_is_refused() -> None:
    made = config()
    made.run_config.environment_variables["RANK"] = "0"
    with pytest.raises(JobError, match="RANK"):
        to_job(made, "e")


def test_docker_settings_that_mean_something_are_used_and_others_noticed() -> None:
    docker = DockerConfiguration(use_docker=True, shm_size="2g", arguments=["--privileged"])
    spec, notices = to_job(config(docker_runtime_config=docker), "e")
    assert spec.resources.shm_size == "2g"
    assert any("--privileged" in notice for notice in notices)


def test_a_curated_environment_travels_by_its_name() -> None:
    for environment in ("AzureML-PyTorch-1.6-GPU", Environment.get(name="AzureML-PyTorch-1.6-GPU")):
        spec, _ = to_job(config(environment=environment), "e")
        assert spec.environment == "AzureML-PyTorch-1.6-GPU"


def test_an_old_name_says_what_it_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert Environment.get(name="AzureML-PyTorch-1.7-GPU").is_curated
    told = capsys.readouterr().err
    assert "environment AzureML-PyTorch-1.7-GPU is a name of Azure ML's; it stands for pytorch" in told


def test_the_copy_of_a_curated_environment_can_be_changed() -> None:
    mine = Environment.get(name="tensorflow").clone("mine")
    mine.python.conda_dependencies.add_pip_package("six")
    described = to_spec(mine)[0]
    assert isinstance(described, dict) and described["name"] == "mine"
    assert described["pip"][-1] == "six" and any("tensorflow" in line for line in described["pip"])
    assert mine.environment_variables == {"TF_USE_LEGACY_KERAS": "1"}


def test_an_environment_that_nobody_made_is_refused() -> None:
    with pytest.raises(NotFound, match="there is no environment 'nobody'; curated are: pytorch"):
        Environment.get(name="nobody")


def test_an_environment_comes_back_from_what_was_registered() -> None:
    conda = {"dependencies": ["python=3.10", "cudatoolkit", {"pip": ["tqdm"]}], "channels": ["c"]}
    sent = {"build": {"path": "snapshot:abc", "dockerfile_path": "Own", "args": {"A": "1"}}}
    for spec in ({"pip": ["numpy==2.1"], "python": "3.11"}, {"python": "/opt/python"}, {"image": "ubuntu:24.04"}, sent):
        assert to_spec(from_spec("e", spec))[0] == {"name": "e", **spec}
    content = to_spec(from_spec("e", {"conda_file": conda}))[0]["conda_file"]  # type: ignore[index,call-overload]
    assert content["dependencies"] == ["python=3.10", "cudatoolkit", "pip", {"pip": ["tqdm"]}]


def test_a_dockerfile_is_a_folder_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path / "cache" / "environments"))
    (tmp_path / "Own.dockerfile").write_text("FROM ubuntu")
    by_path = Environment.from_dockerfile("d", str(tmp_path / "Own.dockerfile"))
    assert to_spec(by_path)[0] == {"name": "d", "build": {"path": str(tmp_path), "dockerfile_path": "Own.dockerfile"}}
    by_text = to_spec(Environment.from_dockerfile("d", "FROM ubuntu\nRUN true\n"))[0]
    assert isinstance(by_text, dict)
    assert (Path(by_text["build"]["path"]) / "Dockerfile").read_text() == "FROM ubuntu\nRUN true\n"
    (tmp_path / "requirements.txt").write_text("six")
    on_top = Environment.from_dockerfile("d", "FROM ubuntu\n", pip_requirements=str(tmp_path / "requirements.txt"))
    described = to_spec(on_top)[0]
    assert isinstance(described, dict) and described["conda_file"]["dependencies"][-1] == {"pip": ["six"]}
    with pytest.raises(JobError, match="there is no Dockerfile nowhere"):
        to_spec(Environment.from_dockerfile("d", "nowhere"))


def environment_of(environment: Environment) -> Any:
    spec, _ = to_job(config(environment=environment), "e")
    return spec.environment and spec.environment.model_dump(exclude_defaults=True)  # type: ignore[union-attr]


def test_environments_travel_in_the_job(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("# header\ntorch==2.4  # fast\n\nazureml-defaults\nnumpy\n")
    pip = Environment.from_pip_requirements("p", str(requirements))
    assert environment_of(pip) == {"name": "p", "pip": ("torch==2.4", "numpy")}
    assert any("azureml-defaults" in notice for notice in to_job(config(environment=pip), "e")[1])

    conda = tmp_path / "conda.yml"
    conda.write_text("channels: [pytorch]\ndependencies: [python=3.10, pytorch, {pip: [tqdm]}]\n")
    content = environment_of(Environment.from_conda_specification("c", str(conda)))["conda_file"]
    assert content["channels"] == ["pytorch"]
    assert content["dependencies"] == ["python=3.10", "pytorch", "pip", {"pip": ["tqdm"]}]

    assert environment_of(Environment.from_docker_image("d", "ubuntu:22.04")) == {"name": "d", "image": "ubuntu:22.04"}


def test_an_interpreter_of_the_users_own_is_kept() -> None:
    environment = Environment("mine")
    environment.python.user_managed_dependencies = True
    assert environment_of(environment) is None
    environment.python.interpreter_path = "/opt/py/bin/python"
    assert environment_of(environment) == {"name": "mine", "python": "/opt/py/bin/python"}


def test_variables_of_an_environment_reach_the_job_below_the_runs_own() -> None:
    environment = Environment("e")
    environment.environment_variables = {"A": "1", "B": "1"}
    made = config(environment=environment)
    made.run_config.environment_variables = {"B": "2"}
    assert to_job(made, "e")[0].environment_variables == {"A": "1", "B": "2"}


def test_conda_dependencies_are_built_up() -> None:
    packages = CondaDependencies.create(pip_packages=["a"], conda_packages=["b"], python_version="3.11")
    packages.add_pip_package("c")
    packages.add_conda_package("d")
    packages.add_channel("x")
    assert packages.as_dict()["dependencies"] == ["python=3.11", "b", "d", "pip", {"pip": ["a", "c"]}]
    assert packages.as_dict()["channels"] == ["x"]


def test_a_chief_and_an_evaluator_can_be_asked_for() -> None:
    distribution = TensorflowConfiguration(worker_count=2, parameter_server_count=0, chief=True, evaluator=True)
    spec, _ = to_job(config(distributed_job_config=distribution), "e")
    assert spec.distribution == TensorFlow(worker_count=2, parameter_server_count=0, chief=True, evaluator=True)


def test_a_folder_that_the_script_writes_is_an_output() -> None:
    spec, _ = to_job(config(arguments=["--out", OutputFileDatasetConfig("model").as_upload()]), "e")
    assert spec.command[-1] == "${{outputs.model}}"
    assert spec.outputs["model"].mode == "upload"


def test_a_dockerfile_may_be_given_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM ubuntu\n")
    described, _ = to_spec(Environment.from_dockerfile("e", tmp_path / "Dockerfile"))
    assert described == {"name": "e", "build": {"path": str(tmp_path), "dockerfile_path": "Dockerfile"}}


def test_the_destination_of_an_output_names_its_run_and_itself() -> None:
    store = cast(Datastore, SimpleNamespace(name="results"))
    output = OutputFileDatasetConfig("model", destination=(store, "out/{run-id}/{output-name}"))
    spec, _ = to_job(config(arguments=["--out", output.register_on_complete("best")]), "e")
    assert spec.outputs["model"].path == "azureml://datastores/results/paths/out/${{name}}/model"
