"""Model files, in Azure ML's format: a name, a path, a type, a description and tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import located, mapping, read_asset_file
from muster.wire.codec import Json
from muster.wire.models import MODEL_TYPES, STAGES, ModelType, Stage

_KEYS = ("name", "version", "type", "path", "description", "tags", "properties", "flavors", "stage")
_SILENT = ("$schema", "id", "job_name", "latest_version", "utc_time_created", "creation_context", "datastore")
_LEFT_OUT = {"flavors": "the MLmodel file says them"}


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file."""

    name: str
    path: str
    """A local path, made absolute, or an address."""
    type: ModelType | None = None
    version: int | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)
    stage: Stage | None = None
    notices: tuple[str, ...] = ()


def read_model_file(file: Path) -> ModelFile:
    """Read a model file; raises JobError with the file, the line and the key."""
    values = read_asset_file(file, "model file", _KEYS, _SILENT)
    name, path = values.get("name"), values.get("path")
    if not isinstance(name, str) or not isinstance(path, str):
        missing = "name" if not isinstance(name, str) else "path"
        raise JobError(f"{file}: `{missing}` is missing, or is no text", f"Write {missing}: …")
    kind, stage = values.get("type"), values.get("stage")
    _allowed(file, "type", kind, MODEL_TYPES)
    _allowed(file, "stage", stage, STAGES)
    return ModelFile(
        name,
        _path(path, file.parent, values.get("datastore")),
        next((known for known in MODEL_TYPES if known == kind), None),
        _version(file, values.get("version")),
        None if values.get("description") is None else str(values["description"]),
        {key: str(value) for key, value in mapping(values, "tags").items()},
        mapping(values, "properties"),
        next((known for known in STAGES if known == stage), None),
        tuple(f"{key} is left out: {why}" for key, why in _LEFT_OUT.items() if key in values),
    )


def _allowed(file: Path, key: str, value: Json, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise JobError(f"{file}: {key}: {value!r} is not allowed", f"Allowed are {', '.join(known)}.")


def _version(file: Path, value: Json) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise JobError(f"{file}: the version {text!r} is no number", "Leave it out for the next one.")
    return int(text)


def _path(path: str, folder: Path, datastore: Json) -> str:
    if isinstance(datastore, str):
        return f"azureml://datastores/{datastore.removeprefix('azureml:')}/paths/{path.lstrip('/')}"
    return located(path, folder)
