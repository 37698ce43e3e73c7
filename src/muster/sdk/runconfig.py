"""v1's configurations: what is submitted and how it is launched."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from muster.defaults import MAX_RUN_S
from muster.sdk import runconfig_file
from muster.sdk.conda import CondaDependencies
from muster.sdk.environment import Environment


class Named(Protocol):
    @property
    def name(self) -> str: ...


class MpiConfiguration:
    """`process_count_per_node` processes on each of `node_count` nodes, started by mpirun."""

    def __init__(self, process_count_per_node: int = 1, node_count: int = 1) -> None:
        self.process_count_per_node = process_count_per_node
        self.node_count = node_count


class PyTorchConfiguration:
    """`process_count` processes in total over `node_count` nodes; None is one per node, which starts the others."""

    def __init__(
        self, communication_backend: str = "Nccl", process_count: int | None = None, node_count: int = 1
    ) -> None:
        self.communication_backend = communication_backend
        self.process_count = process_count
        self.node_count = node_count


class TensorflowConfiguration:
    """Workers, one per node, parameter servers, a chief and an evaluator, described to them by TF_CONFIG."""

    def __init__(
        self,
        worker_count: int = 1,
        parameter_server_count: int = 1,
        *,
        chief: bool = False,
        evaluator: bool = False,
    ) -> None:
        self.worker_count = worker_count
        self.parameter_server_count = parameter_server_count
        self.chief = chief
        self.evaluator = evaluator


DistributedConfiguration = MpiConfiguration | PyTorchConfiguration | TensorflowConfiguration


class DockerConfiguration:
    """How the environment's container is run, if it has one."""

    def __init__(
        self,
        use_docker: bool = False,
        shared_volumes: bool = True,
        arguments: Sequence[str] | None = None,
        shm_size: str | None = None,
    ) -> None:
        self.use_docker = use_docker
        self.shared_volumes = shared_volumes
        self.arguments = list(arguments or [])
        self.shm_size = shm_size


class RunConfiguration:
    """The compute target and environment of a script; part of a `ScriptRunConfig`."""

    def __init__(
        self,
        script: str | None = None,
        arguments: Sequence[Any] | None = None,
        framework: str = "Python",
        communicator: str = "None",
        conda_dependencies: CondaDependencies | None = None,
        command: str | Sequence[Any] | None = None,
    ) -> None:
        self.script = script
        self.arguments = arguments
        self.command = command
        self.framework = framework
        self.communicator = communicator
        self.target: str | Named = "local"
        self.environment: Environment | str | None = Environment("default")
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.environment_variables: dict[str, str] = {}
        self.node_count = 1
        self.docker = DockerConfiguration()
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.data: Any = {}
        self.data_references: Any = {}
        self.output_data: Any = {}
        self.auto_prepare_environment = True
        # Kept for v1 scripts, which set attributes of these: Azure's own clusters, Spark, snapshots of outputs.
        self.amlcompute = SimpleNamespace()
        self.history = SimpleNamespace(output_collection=True, directories_to_watch=["logs"], snapshot_project=True)
        self.spark = SimpleNamespace()
        self.services: Any = {}
        self.max_run_duration_seconds: int | None = MAX_RUN_S

    def save(
        self, path: str | Path | None = None, name: str | None = None, separate_environment_yaml: bool = False
    ) -> str:
        """Write it to `.azureml/NAME.runconfig` below a folder, or to the file `path`; returns the file."""
        return str(runconfig_file.save(self, path, name))

    @staticmethod
    def load(path: str | Path, name: str | None = None) -> RunConfiguration:
        """Read one that was saved here or by Azure ML: a file, or NAME below a folder."""
        made = RunConfiguration()
        runconfig_file.load(made, path, name)
        return made

    @property
    def distributed_job_config(self) -> DistributedConfiguration | None:
        """The distribution from `framework` and `communicator`, which older v1 scripts set."""
        framework, communicator = self.framework.lower(), self.communicator.lower()
        if "mpi" in communicator:
            return MpiConfiguration(self.mpi.process_count_per_node, self.node_count)
        if communicator == "parameterserver":
            return self.tensorflow
        if framework == "pytorch" and communicator in ("nccl", "gloo"):
            return PyTorchConfiguration(self.communicator, self.pytorch.process_count, self.node_count)
        if self.node_count > 1:
            return PyTorchConfiguration(self.pytorch.communication_backend, None, self.node_count)
        return None


class ScriptRunConfig:
    """The argument of `Experiment.submit`. `script` and `command` exclude each other."""

    def __init__(
        self,
        source_directory: str | Path,
        script: str | None = None,
        arguments: Sequence[Any] | None = None,
        command: str | Sequence[Any] | RunConfiguration | None = None,
        compute_target: str | Named | None = None,
        environment: Environment | str | None = None,
        distributed_job_config: DistributedConfiguration | None = None,
        resume_from: Any = None,
        max_run_duration_seconds: int | None = MAX_RUN_S,
        *,
        run_config: RunConfiguration | None = None,
        docker_runtime_config: DockerConfiguration | None = None,
    ) -> None:
        if isinstance(command, RunConfiguration):
            # The fourth argument of v1.
            command, run_config = None, command
        self.source_directory = source_directory
        self.run_config = copy.deepcopy(run_config) if run_config is not None else RunConfiguration()
        self.script = script if script is not None else self.run_config.script
        self.arguments = arguments if arguments is not None else self.run_config.arguments
        self.command = command if command is not None else self.run_config.command
        self.distributed_job_config = distributed_job_config
        self.resume_from = resume_from
        self.inputs: list[Any] = []
        """Data that the script finds only by name (`run.input_datasets`), besides that in its arguments."""
        if compute_target is not None:
            self.run_config.target = compute_target
        if environment is not None:
            self.run_config.environment = environment
        if docker_runtime_config is not None:
            self.run_config.docker = docker_runtime_config
        if run_config is None or max_run_duration_seconds != MAX_RUN_S:
            self.run_config.max_run_duration_seconds = max_run_duration_seconds

    @property
    def compute_target(self) -> str | Named:
        """The cluster to run on: a name, or a `ComputeTarget`."""
        return self.run_config.target

    @property
    def environment(self) -> Environment | str | None:
        """The environment of the ranks; None: the submitting Python."""
        return self.run_config.environment
