"""Estimators: v1's older form of a ScriptRunConfig, with an environment for a framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.defaults import MAX_RUN_S
from muster.errors import JobError
from muster.sdk.conda import CondaDependencies
from muster.sdk.environment import Environment, azure_name_notice, curated
from muster.sdk.notices import ignored, tell
from muster.sdk.runconfig import (
    DistributedConfiguration,
    DockerConfiguration,
    MpiConfiguration,
    Named,
    PyTorchConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
)
from muster.wire.codec import Json

Given = Mapping[str, Json]
"""v1's arguments by name."""


class Mpi(MpiConfiguration):
    """Processes that mpirun starts; the estimator has the number of nodes."""

    def __init__(self, process_count_per_node: int = 1) -> None:
        super().__init__(process_count_per_node)


class ParameterServer(TensorflowConfiguration):
    """Workers and parameter servers of TensorFlow."""


class Gloo:
    """PyTorch's own processes, one per node, with Gloo."""

    backend = "Gloo"

    def __init__(self, process_count: int | None = None) -> None:
        self.process_count = process_count


class Nccl(Gloo):
    """PyTorch's own processes, one per node, with NCCL."""

    backend = "Nccl"


class Estimator(ScriptRunConfig):
    """A script with its arguments, its packages and how it is distributed."""

    framework = ""
    """The curated environment that it runs in; empty: the submitting Python, with the given packages."""

    def __init__(
        self,
        source_directory: str | Path,
        *,
        compute_target: str | Named | None = None,
        entry_script: str | None = None,
        script_params: Given | None = None,
        node_count: int = 1,
        process_count_per_node: int = 1,
        distributed_backend: str | None = None,
        distributed_training: Any = None,
        inputs: Sequence[Any] | None = None,
        environment_definition: Environment | None = None,
        resume_from: Any = None,
        max_run_duration_seconds: int | None = MAX_RUN_S,
        **more: Any,
    ) -> None:
        made = environment_definition or _environment(self.framework, more)
        super().__init__(
            source_directory,
            entry_script,
            _arguments(script_params or {}),
            compute_target=compute_target,
            environment=made,
            distributed_job_config=_distribution(
                distributed_training or distributed_backend, node_count, process_count_per_node
            ),
            resume_from=resume_from,
            max_run_duration_seconds=max_run_duration_seconds,
            docker_runtime_config=DockerConfiguration(shm_size=more.get("shm_size")),
        )
        if made is None:
            self.run_config.environment = None
        self.inputs = list(inputs or ())
        self.run_config.environment_variables = _variables(more.get("environment_variables"))


class PyTorch(Estimator):
    """A script for PyTorch."""

    framework = "PyTorch"


class TensorFlow(Estimator):
    """A script for TensorFlow."""

    framework = "TensorFlow"


class Keras(Estimator):
    """A script for Keras."""

    framework = "Keras"


class SKLearn(Estimator):
    """A script for scikit-learn."""

    framework = "Scikit-learn"


def _variables(given: Given | None) -> dict[str, str]:
    return {name: str(value) for name, value in (given or {}).items()}


def _environment(framework: str, given: Given) -> Environment | None:
    """The framework's curated environment with the job's packages; None is the submitting Python."""
    packages = _packages(given)
    image = _text(given, "custom_docker_image") or _text(given, "custom_docker_base_image")
    version, user_managed = _text(given, "framework_version"), bool(given.get("user_managed"))
    tell(*ignored(framework or "Estimator", {name: _text(given, name) for name in ("vm_size", "vm_priority")}))
    if user_managed and not image:
        return None
    if framework and not image:
        name = f"AzureML-{framework}-{version or '2'}"
        made = curated(name)
        if notice := azure_name_notice(name):
            tell(notice)
        if not packages.pip_packages and not packages.conda_packages:
            return made
        made = made.clone(f"{framework.lower()}-estimator")
        own = made.python.conda_dependencies
        for package in packages.pip_packages:
            own.add_pip_package(package)
        for package in packages.conda_packages:
            own.add_conda_package(package)
        return made
    if not packages.pip_packages and not packages.conda_packages and not image:
        return None
    made = Environment("estimator")
    made.python.conda_dependencies = packages
    made.python.user_managed_dependencies = user_managed
    made.docker.base_image = image
    return made


def _packages(given: Given) -> CondaDependencies:
    file = _text(given, "conda_dependencies_file") or _text(given, "conda_dependencies_file_path")
    if file:
        return CondaDependencies(file)
    requirements = _text(given, "pip_requirements_file") or _text(given, "pip_requirements_file_path")
    if requirements:
        return Environment.from_pip_requirements("estimator", requirements).python.conda_dependencies
    return CondaDependencies.create(
        pip_packages=_texts(given.get("pip_packages")), conda_packages=_texts(given.get("conda_packages"))
    )


def _text(given: Given, name: str) -> str | None:
    value = given.get(name)
    return None if value is None else str(value)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, Iterable) else []


def _arguments(params: Given) -> list[Any]:
    """`{"--lr": 0.1, "--verbose": ""}` as words."""
    return [word for name, value in params.items() for word in ((name,) if value == "" else (name, value))]


def _distribution(training: Any, nodes: int, per_node: int) -> DistributedConfiguration | None:
    if isinstance(training, str):
        named = {"mpi": Mpi(per_node), "ps": ParameterServer(nodes), "gloo": Gloo(), "nccl": Nccl()}
        if training.lower() not in named:
            raise JobError(f"distributed_backend={training!r} is not known", f"Use one of: {', '.join(named)}.")
        training = named[training.lower()]
    if isinstance(training, Gloo):
        return PyTorchConfiguration(training.backend, training.process_count or nodes * per_node, nodes)
    if isinstance(training, MpiConfiguration):
        return MpiConfiguration(training.process_count_per_node, nodes)
    if isinstance(training, TensorflowConfiguration | PyTorchConfiguration):
        return training
    if training is not None:
        raise JobError(f"distributed_training={training!r} is not known", "Use Mpi, ParameterServer, Gloo or Nccl.")
    return MpiConfiguration(per_node, nodes) if nodes > 1 or per_node > 1 else None


__all__ = ["Estimator", "Gloo", "Keras", "Mpi", "Nccl", "ParameterServer", "PyTorch", "SKLearn", "TensorFlow"]
