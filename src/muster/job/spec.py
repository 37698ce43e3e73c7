"""The job vocabulary: frozen data, validated at the edge, shared by every way in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Scalar = bool | int | float | str


class Model(BaseModel):
    """Frozen, refuses unknown keys, and does not turn text into numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Resources(Model):
    """How much of a cluster the job holds."""

    instance_count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of nodes."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1024)] | None = None
    """GPUs held on each node; absent: all that the node (or its share of the machine) has."""
    shm_size: str | None = None
    """Shared memory, such as `2g`."""


class PyTorch(Model):
    """Ranks as PyTorch expects them."""

    type: Literal["pytorch"] = "pytorch"
    process_count_per_instance: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; absent: one per node, which starts the rest itself."""
    communication_backend: str | None = None


class Mpi(Model):
    """Ranks started by a real `mpirun`."""

    type: Literal["mpi"] = "mpi"
    process_count_per_instance: Annotated[int, Field(ge=1, le=1024)] = 1


class TensorFlow(Model):
    """Tasks described by `TF_CONFIG`."""

    type: Literal["tensorflow"] = "tensorflow"
    worker_count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Absent: one per node."""
    parameter_server_count: Annotated[int, Field(ge=0, le=10_000)] = 0
    chief: bool = False
    evaluator: bool = False


Distribution = Annotated[PyTorch | Mpi | TensorFlow, Field(discriminator="type")]


class Input(Model):
    """A file or folder that the job reads."""

    type: Literal["uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model"] = "uri_folder"
    path: str
    mode: Literal["ro_mount", "download", "direct"] = "ro_mount"
    optional: bool = False


class Output(Model):
    """A file or folder that the job writes."""

    type: Literal["uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model"] = "uri_folder"
    path: str | None = None
    """Absent: kept with the run, under `outputs/NAME`."""
    mode: Literal["rw_mount", "upload", "direct"] = "rw_mount"


class EnvironmentSpec(Model):
    """What a rank runs in; absent: the current Python."""

    name: str | None = None
    image: str | None = None
    build: dict[str, Any] | None = None
    conda_file: Any = None
    python: str | None = None
    """A Python interpreter's path, or a version."""
    pip: tuple[str, ...] = ()


class Limits(Model):
    """When the job is stopped."""

    timeout: Annotated[int, Field(gt=0)] | None = None
    """Seconds of running after which the job is stopped."""


class QueueSettings(Model):
    priority: Literal["low", "medium", "high"] = "medium"


class JobSpec(Model):
    """One job: what to run, on how many nodes, as which ranks, with what data."""

    type: Literal["command"] = "command"
    name: str | None = None
    display_name: str | None = None
    experiment_name: str = "default"
    description: str | None = None
    tags: dict[str, str] = {}
    code: str | None = None
    """Folder (or file) with the script, relative to the job file."""
    command: str | tuple[str, ...]
    """Text runs under bash; a list is expanded per rank without a shell."""
    environment: str | EnvironmentSpec | None = None
    compute: str = "local"
    resources: Resources = Resources()
    distribution: Distribution | None = None
    inputs: dict[str, Scalar | Input] = {}
    outputs: dict[str, Output] = {}
    environment_variables: dict[str, str] = {}
    limits: Limits = Limits()
    queue_settings: QueueSettings = QueueSettings()
