"""The parts of a job: frozen data, validated at the edge, shared by every way in."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from muster.host.files import leaves_folder
from muster.job import rules
from muster.job.refusal import refusal, show
from muster.wire.codec import Json
from muster.wire.notifications.events import CHOICES, QUIET_S, USUAL, unknown
from muster.wire.verdicts import USER_ERRORS


def _checked_text(value: str) -> str:
    if "\0" in value:
        raise refusal("holds a NUL character, which no command, path or variable can carry", "Remove it.")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise refusal("holds half of a surrogate pair, which is not valid text", "Remove it.")
    return value


def _as_text(value: Any) -> Any:
    """Numbers become text where only text makes sense."""
    return str(value) if isinstance(value, int | float) and abs(value) < 1e300 else value


def _as_texts(value: Any) -> Any:
    return {key: _as_text(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def as_tuple(value: Any) -> Any:
    """A list of texts from a file, made immutable."""
    return tuple(_as_text(item) for item in value) if isinstance(value, list | tuple) else value


def one_or_several(value: Any) -> Any:
    """One text, or a list of them."""
    return (value,) if isinstance(value, str) else as_tuple(value)


def as_lower(value: Any) -> Any:
    """Words that are accepted in any case."""
    return value.lower() if isinstance(value, str) else value


def _path_or_content(value: Any) -> Any:
    if not isinstance(value, str | Mapping):
        raise refusal(
            f"{show(value)} is neither a path nor a mapping", "Write the path of a conda file, or its content."
        )
    return _checked_text(value) if isinstance(value, str) else value


Scalar = bool | int | float | str
Text = Annotated[str, AfterValidator(_checked_text)]
Texts = Annotated[dict[Text, Text], BeforeValidator(_as_texts)]
DataType = Literal["uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model"]


class Model(BaseModel):
    """Frozen, refuses unknown keys, and does not turn text into numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


_LEAST_SHARE = 0.01


class Resources(Model):
    """How much of a cluster the job holds."""

    instance_count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of nodes."""
    gpus_per_node: Annotated[float, Field(ge=0, le=1024)] | None = None
    """GPUs held on each node; absent: all that it (or its share of the machine) has; `0.25`: this part of one."""
    gpu_isolation: bool = False
    """Each rank sees its own share of the node's GPUs, as `cuda:0` and up; otherwise every rank sees all of them."""
    shm_size: Text | None = None
    """Shared memory, such as `2g` or `512m`."""
    docker_args: Text | None = None
    """For a job in a container: limits such as `--memory 8g --cpus 4`."""

    @property
    def whole_gpus(self) -> int | None:
        """How many GPUs on each node are used, even in part; None: all."""
        return None if self.gpus_per_node is None else math.ceil(self.gpus_per_node)

    @property
    def gpu_share(self) -> float:
        """The share of its only GPU that is held; 1: all of it."""
        given = self.gpus_per_node
        return round(given, 4) if given is not None and 0 < given < 1 else 1.0

    @property
    def container_args(self) -> tuple[str, ...]:
        """The words of `docker_args`."""
        return tuple(shlex.split(self.docker_args)) if self.docker_args else ()

    @field_validator("gpus_per_node", mode="after")
    @classmethod
    def _are_gpus(cls, value: float | None) -> float | None:
        if value is None or value == int(value):
            return value if value is None else int(value)
        if not _LEAST_SHARE <= value < 1:
            raise refusal(
                f"{value:g} is neither a whole number nor a part of one GPU",
                f"Write a whole number, or a part from {_LEAST_SHARE:g} up to 1, such as 0.25.",
            )
        return value

    @field_serializer("gpus_per_node")
    def _as_written(self, value: float | None) -> int | float | None:
        return value

    @field_validator("docker_args", mode="after")
    @classmethod
    def _are_limits(cls, value: str | None) -> str | None:
        if value is not None and (wrong := rules.wrong_container_args(value)):
            raise refusal(wrong, f"Allowed are {', '.join(rules.CONTAINER_ARGS)}.")
        return value

    @field_validator("shm_size", mode="after")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        if value is not None and not rules.SHM_SIZE.fullmatch(value):
            raise refusal(f"{show(value)} is not a size", "Write a whole number with b, k, m or g, such as 2g or 512m.")
        return value


class PyTorch(Model):
    """Ranks as PyTorch expects them."""

    type: Literal["pytorch"] = "pytorch"
    process_count_per_instance: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; absent: one per node, which starts the rest itself (`torchrun`, Lightning)."""
    communication_backend: Text | None = None
    """Passed to the script as `MUSTER_COMMUNICATION_BACKEND`, such as `nccl` or `gloo`."""


class Mpi(Model):
    """Ranks started by a real `mpirun`."""

    type: Literal["mpi"] = "mpi"
    process_count_per_instance: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes per node."""


class TensorFlow(Model):
    """Tasks described by `TF_CONFIG`."""

    type: Literal["tensorflow"] = "tensorflow"
    worker_count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Workers, one per node; absent: as many as there are nodes. Alone, it sets the number of nodes."""
    parameter_server_count: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Parameter servers; they share the first nodes with the workers, at most one on each."""
    chief: bool = False
    """Adds a task with the role `chief`."""
    evaluator: bool = False
    """Adds a task with the role `evaluator`."""


Distribution = Annotated[PyTorch | Mpi | TensorFlow, Field(discriminator="type")]


class Input(Model):
    """A file or folder that the job reads, or an optional input that is not given."""

    type: Literal[DataType, "string", "integer", "number", "boolean"] = "uri_folder"
    """What the path is. The types of plain values declare an optional value that is not given."""
    path: Text | None = None
    """A local path, relative to the job file, or an address; only an optional input may lack it."""
    mode: Literal["ro_mount", "download", "direct", "stream"] = "ro_mount"
    """`ro_mount`: read-only, staged on the node where it is not there yet; `download`: a copy of the job's own;
    `direct`: the path is passed on as it is; `stream`: staged while the job runs, for `muster.training.data`."""
    optional: bool = False
    """May be left out; `$[[ … ]]` parts of the command that use it are then dropped."""

    @model_validator(mode="after")
    def _has_a_path_unless_optional(self) -> Input:
        if not self.path and not self.optional:
            raise refusal(
                "has no path",
                "Add `path`, give --input NAME=PATH, or add `optional: true` where the job can do without.",
            )
        if self.mode == "stream" and self.type != "uri_folder":
            raise refusal(
                f"has the mode stream and the type {self.type}",
                "Only folders arrive file by file: give it the type uri_folder, or another mode.",
            )
        return self


class Output(Model):
    """A file or folder that the job writes."""

    type: DataType = "uri_folder"
    """What the command writes there."""
    path: Text | None = None
    """Where it goes; absent: kept with the run, under `outputs/NAME`."""
    mode: Literal["rw_mount", "upload", "direct"] = "rw_mount"
    """`rw_mount`: sent as the job runs; `upload`: sent at its end; `direct`: the job itself writes to the address."""
    name: Text | None = None
    """Registers what the job wrote as a data asset or, by its type, as a model of this name, when it has completed."""
    version: Annotated[str, BeforeValidator(_as_text)] | None = None
    """The version of the data asset or model; absent: the next one."""

    @field_validator("path", mode="after")
    @classmethod
    def _stays_inside(cls, value: str | None) -> str | None:
        if value is not None and not rules.is_address(value) and leaves_folder(value):
            raise refusal(
                f"{show(value)} leaves the working folder",
                "Write a path inside it, such as outputs/model, or leave `path` out.",
            )
        return value


class Build(Model):
    """A container image that is built from a folder."""

    path: Text
    """The folder with the Dockerfile, relative to the job file."""
    dockerfile_path: Text | None = None
    """The Dockerfile, relative to `path`; absent: `Dockerfile`."""
    args: Texts = {}
    """Build arguments."""


class EnvironmentSpec(Model):
    """What a rank runs in; absent: the current Python."""

    name: Text | None = None
    """A registered environment; with another source, its label."""
    image: Text | None = None
    """A container image; `conda_file` or `pip` are installed on top of it."""
    build: Build | None = None
    """A container image that is built from a folder; `conda_file` or `pip` are installed on top of it."""
    conda_file: Annotated[str | dict[str, Json], BeforeValidator(_path_or_content)] | None = None
    """A conda specification: its path, or its content."""
    python: Text | None = None
    """A Python interpreter's path, or a version."""
    pip: Annotated[tuple[Text, ...], BeforeValidator(as_tuple)] = ()
    """Requirements that pip installs: alone, with `python`, or on top of `image` or `build`."""
    strict: bool = False
    """Refuse a Python, version or image that cannot be had; otherwise the nearest is taken, with a notice."""
    pip_requirements_file: Text | None = None
    """A file of such requirements (`requirements.txt`), relative to the job file; added to `pip`."""

    @property
    def is_a_name(self) -> bool:
        """Whether it has nothing but a name."""
        return not (
            self.image
            or self.build
            or self.conda_file is not None
            or self.python
            or self.pip
            or self.pip_requirements_file
        )

    @model_validator(mode="after")
    def _has_one_source(self) -> EnvironmentSpec:
        sources = {
            "image": self.image is not None,
            "build": self.build is not None,
            "conda_file": self.conda_file is not None,
            "python": self.python is not None,
            "pip": bool(self.pip or self.pip_requirements_file) and self.python is None,
        }
        given = [key for key, present in sources.items() if present]
        is_topped = len(given) == 2 and given[0] in ("image", "build") and given[1] in ("conda_file", "pip")
        if (len(given) > 1 and not is_topped) or not (given or self.name):
            said = " and ".join(given) if given else "no source"
            raise refusal(
                f"gives {said}; exactly one is needed",
                "Give one of: image or build (alone, or with conda_file or pip), conda_file, python and pip, or name.",
            )
        return self


class Service(Model):
    """A port of rank 0's node that people reach through the server, with `muster forward`."""

    type: Literal["ssh", "tensor_board", "jupyter_lab", "custom"]
    """What is started beside rank 0; `custom`: nothing, the job's own program listens."""
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Where it listens; absent: a free port, which the ranks find as `MUSTER_SERVICE_NAME_PORT`."""
    log_dir: Text | None = None
    """For `tensor_board`: the folder with the events, relative to the working folder (`outputs`)."""
    ssh_public_keys: Text | None = None
    """For `ssh`: who may enter, as in `authorized_keys`."""

    @model_validator(mode="after")
    def _lets_somebody_in(self) -> Service:
        if self.type == "ssh" and not (self.ssh_public_keys or "").strip():
            raise refusal(
                "has no ssh_public_keys", "Add the public key of the person who is to log in: ssh_public_keys: …"
            )
        return self


class Limits(Model):
    """When the job is stopped."""

    timeout: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Seconds of running after which the job is stopped."""


class QueueSettings(Model):
    """How the job waits."""

    priority: Annotated[Literal["low", "medium", "high"], BeforeValidator(as_lower)] = "medium"
    """Jobs of a higher priority start first."""
    preemptible: bool | None = None
    """Whether jobs of a higher priority may end this one, which then goes back to the queue; absent: as its cluster
    says."""


class Retry(Model):
    """When a failed attempt is followed by another; what is absent is the workspace's default."""

    preemption: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Further attempts after preemptions (10)."""
    node_loss: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Further attempts after lost nodes and faults of GPUs (3)."""
    platform: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Further attempts after faults of Muster or its surroundings (3)."""
    user_error: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Further attempts after every other failure (0)."""
    backoff_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """Seconds before the first further attempt (2); doubled for each one that follows, and spread at random."""
    on_codes: Annotated[tuple[Text, ...], BeforeValidator(as_tuple, json_schema_input_type=list[str])] | None = None
    """Verdicts that `user_error` covers, such as `[signal, host_oom]`; absent: all that could go better next time."""
    keep_checkpoints: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many of the last published checkpoints are kept (2)."""

    @field_validator("on_codes", mode="after")
    @classmethod
    def _are_verdicts(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        wrong = [code for code in value or () if code not in USER_ERRORS]
        if wrong:
            raise refusal(f"{show(wrong[0])} is no such verdict", f"Use some of: {', '.join(USER_ERRORS)}.")
        return value


class Notify(Model):
    """Who is told of the run, and of what."""

    to: Annotated[Text, Field(min_length=1, max_length=2000)]
    """The name of a receiver (`muster notify add`), or an address: `https://…`, `slack+https://…`, `mailto:…`."""
    when: Annotated[tuple[Text, ...], BeforeValidator(one_or_several, json_schema_input_type=str | list[str])] = USUAL
    """Some of `ends`, `starts`, `completes`, `fails`, `cancels`, `retries`, `hangs`, `nan` (its loss is no number)."""
    quiet_s: Annotated[float, Field(ge=10, le=2_592_000, strict=False)] = QUIET_S
    """Seconds without output or metric after which it counts as hanging."""

    @field_validator("when", mode="after")
    @classmethod
    def _are_events(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = unknown(value)
        if wrong is not None or not value:
            raise refusal(f"{show(wrong or value)} is no event", f"Use some of: {', '.join(CHOICES)}.")
        return value


def notified(value: Any) -> Any:
    """One receiver or several, each a text or a mapping."""
    items = value if isinstance(value, list | tuple) else [value]
    return tuple({"to": item} if isinstance(item, str) else item for item in items)


Notified = Annotated[
    tuple[Notify, ...], BeforeValidator(notified, json_schema_input_type=str | Notify | list[str | Notify])
]
