"""Registered models: what is registered, what clients see, what they may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT, Json
from muster.wire.data.access import FileEntry, HashedFile
from muster.wire.message import check_name, wire

ModelType = Literal["custom_model", "mlflow_model", "triton_model"]
MODEL_TYPES: tuple[ModelType, ...] = ("custom_model", "mlflow_model", "triton_model")
Stage = Literal["None", "Staging", "Production", "Archived"]
STAGES: tuple[Stage, ...] = ("None", "Staging", "Production", "Archived")


@wire
class NewModel:
    """The body of `POST models`: the next version of a model, from a run's files or from a datastore."""

    name: str
    path: str = "outputs"
    """The path below the run's files; the file's or folder's own name where the bytes are in a datastore."""
    run_id: str | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)
    type: ModelType | None = field(default=None, metadata=OMIT)
    """None: detected from its files."""
    address: str | None = field(default=None, metadata=OMIT)
    """The address of its bytes in a datastore."""
    files: tuple[HashedFile, ...] | None = field(default=None, metadata=OMIT)
    """The files that were uploaded there; None: whatever is there."""
    version: int | None = field(default=None, metadata=OMIT)
    """None: the next one."""

    def __post_init__(self) -> None:
        check_name(self.name)


@wire
class ModelFormat:
    """The format of one file of a model, as detected from its first bytes."""

    path: str
    format: str
    """Such as `safetensors`, `TorchScript`, `ONNX`."""
    details: Mapping[str, str] = field(default_factory=dict)


@wire
class ModelView:
    """One version of a model."""

    name: str
    version: int
    run_id: str | None
    path: str
    """The path below the run's files; the file's or folder's own name where it came from elsewhere."""
    description: str | None
    tags: Mapping[str, str]
    properties: Mapping[str, Json]
    created_at: float
    type: str = field(default="custom_model", metadata=OMIT)
    stage: str = field(default="None", metadata=OMIT)
    aliases: tuple[str, ...] = field(default=(), metadata=OMIT)
    address: str | None = field(default=None, metadata=OMIT)
    """The address of its bytes; None while they are only in its run."""
    num_files: int | None = field(default=None, metadata=OMIT)
    size: int | None = field(default=None, metadata=OMIT)
    digest: str | None = field(default=None, metadata=OMIT)
    """One hash over all names, sizes and hashes."""
    formats: tuple[ModelFormat, ...] = field(default=(), metadata=OMIT)
    created_by: str | None = field(default=None, metadata=OMIT)
    updated_at: float | None = field(default=None, metadata=OMIT)

    @property
    def reference(self) -> str:
        """As a job file names it."""
        return f"azureml:{self.name}:{self.version}"


@wire
class ModelChanges:
    """The body of `PATCH models/NAME/versions/V`; tags are merged, a null tag is removed."""

    description: str | None = field(default=None, metadata=OMIT)
    tags: Mapping[str, str | None] | None = field(default=None, metadata=OMIT)
    stage: Stage | None = field(default=None, metadata=OMIT)
    archive_others: bool = field(default=False, metadata=OMIT)
    """Other versions with this stage become `Archived`."""
    aliases: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    """Aliases that point here from now on."""
    without_aliases: tuple[str, ...] = field(default=(), metadata=OMIT)


@wire
class ModelLineage:
    """The origin of a model: the run, with its inputs and its metrics."""

    run_id: str | None = None
    experiment: str | None = None
    submitted_by: str | None = None
    command: str | None = None
    code: str | None = None
    """The digest of the code's snapshot."""
    environment: str | None = None
    inputs: Mapping[str, Json] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Json] = field(default_factory=dict)
    """The last value of each."""


@wire
class ModelDetails:
    """One version of a model with its files and where it comes from."""

    model: ModelView
    files: tuple[FileEntry, ...]
    lineage: ModelLineage
