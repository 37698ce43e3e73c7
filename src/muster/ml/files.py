"""Files of v2 read in a script: `load_job`, `load_component`, `load_environment`, `load_model` and others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.clusters.file import load_cluster_file
from muster.errors import JobError
from muster.job.assetfile import mapping, read_asset_file
from muster.job.environmentfile import environment_of
from muster.job.jobfile import read_job_file
from muster.job.modelfile import read_model_file
from muster.job.rules import is_address
from muster.ml.command import Command
from muster.ml.entities import AmlCompute, Data, Environment, Model
from muster.ml.values import Value
from muster.wire.codec import Json

_DATA_KEYS = ("name", "version", "type", "path", "description", "tags")
_COMPUTE_KEYS = {
    "vm_size": "size",
    "min_nodes": "min_instances",
    "max_nodes": "max_instances",
    "idle_seconds_before_scaledown": "idle_time_before_scale_down",
    "vm_priority": "tier",
}


def load_job(
    source: str | os.PathLike[str],
    *,
    params_override: Sequence[Mapping[str, Json]] | None = None,
    relative_origin: str | None = None,
) -> Command:
    """A job file as a job that can still be changed; `params_override` is a list of `{"a.b": value}`."""
    document = read_job_file(Path(source))
    values: dict[str, Value] = dict(document.data)
    for override in params_override or ():
        for key, value in override.items():
            values = _with_value(values, key.split("."), value)
    return Command(values, Path(relative_origin) if relative_origin else document.base_dir)


def load_component(source: str | os.PathLike[str], **kwargs: Any) -> Command:
    """A component file; calling what this returns with inputs gives a job."""
    return load_job(source, **kwargs)


def load_environment(source: str | os.PathLike[str]) -> Environment:
    """A file that describes an environment."""
    described = environment_of(Path(source))
    if not isinstance(described, Mapping):
        return Environment(name=None if described is None else str(described))
    return Environment.of(described)


def load_model(source: str | os.PathLike[str]) -> Model:
    """A file that describes a model."""
    said = read_model_file(Path(source))
    version = None if said.version is None else str(said.version)
    return Model(said.name, said.path, said.type or "custom_model", version, said.description, dict(said.tags))


def load_data(source: str | os.PathLike[str]) -> Data:
    """A file that describes data."""
    file = Path(source)
    values = read_asset_file(file, "data file", _DATA_KEYS, ("$schema", "id", "creation_context", "properties"))
    name, path = values.get("name"), values.get("path")
    if not isinstance(name, str) or not isinstance(path, str):
        missing = "name" if not isinstance(name, str) else "path"
        raise JobError(f"{file}: `{missing}` is missing, or is no text", f"Write {missing}: …")
    version = None if values.get("version") is None else str(values["version"])
    tags = {key: str(value) for key, value in mapping(values, "tags").items()}
    return Data(
        path if is_address(path) else str(file.absolute().parent / path),
        str(values.get("type") or "uri_folder"),
        name,
        version,
        None if values.get("description") is None else str(values["description"]),
        tags,
    )


def load_compute(source: str | os.PathLike[str]) -> AmlCompute:
    """A file that describes a cluster."""
    said = load_cluster_file(Path(source))
    if said.name is None:
        raise JobError(f"{source}: `name` is missing", "Write name: my-cluster.")
    options = {_COMPUTE_KEYS.get(key, key): value for key, value in said.options.items()}
    return AmlCompute(name=said.name, **options)  # type: ignore[arg-type]


def _with_value(values: Mapping[str, Value], keys: Sequence[str], value: Value) -> dict[str, Value]:
    key, *rest = keys
    if not rest:
        return {**values, key: value}
    inner = values.get(key)
    return {**values, key: _with_value(inner if isinstance(inner, Mapping) else {}, rest, value)}
