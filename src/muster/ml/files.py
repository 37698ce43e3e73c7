"""Loads v2's files in a script: `load_job`, `load_component`, `load_environment`, `load_model` and others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.clusters.file import load_cluster_file
from muster.errors import JobError
from muster.job.assetfile import read_plain_file
from muster.job.assets.data import read_data_file
from muster.job.environmentfile import environment_of
from muster.job.jobfile import read_job_file
from muster.job.modelfile import read_model_file
from muster.ml.batch_entities import BatchDeployment, BatchEndpoint, ModelBatchDeployment
from muster.ml.command import Command, Component
from muster.ml.datastores import AzureBlobDatastore, AzureDataLakeGen2Datastore, AzureFileDatastore
from muster.ml.entities import AmlCompute, Data, Environment, Model
from muster.ml.online_entities import (
    KubernetesOnlineDeployment,
    KubernetesOnlineEndpoint,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
)
from muster.ml.values import Value
from muster.wire.codec import Json

Overrides = Sequence[Mapping[str, Json]] | None
"""`params_override`: a list of `{"a.b": value}`."""
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
    params_override: Overrides = None,
    relative_origin: str | None = None,
) -> Command:
    """Load a job file as a job that can still be changed; `params_override` is a list of `{"a.b": value}`."""
    document = read_job_file(Path(source))
    values = _overridden(document.data, params_override)
    return Command(values, Path(relative_origin) if relative_origin else document.base_dir)


def load_component(source: str | os.PathLike[str], **kwargs: Any) -> Component:
    """Load a component file; calling the result with inputs gives a job."""
    read = load_job(source, **kwargs)
    return Component(read.values, read.base_dir)


def load_environment(source: str | os.PathLike[str], **kwargs: Any) -> Environment:
    """Load a file that describes an environment."""
    described = environment_of(Path(source))
    if not isinstance(described, Mapping):
        return Environment(name=None if described is None else str(described))
    return Environment.of(described)


def load_model(source: str | os.PathLike[str], **kwargs: Any) -> Model:
    """Load a file that describes a model."""
    said = read_model_file(Path(source))
    version = None if said.version is None else str(said.version)
    return Model(said.name, said.path, said.type or "custom_model", version, said.description, dict(said.tags))


def load_data(source: str | os.PathLike[str], **kwargs: Any) -> Data:
    """Load a file that describes data."""
    said = read_data_file(Path(source))
    return Data(said.path, said.type or "uri_folder", said.name, said.version, said.description, dict(said.tags))


def load_datastore(source: str | os.PathLike[str], *, params_override: Overrides = None) -> AzureBlobDatastore:
    """Load a file that describes a datastore."""
    values = _read(source, params_override)
    kind = str(values.get("type") or "").lower()
    kinds = {known.kind: known for known in (AzureBlobDatastore, AzureFileDatastore, AzureDataLakeGen2Datastore)}
    made = kinds.get(kind, AzureBlobDatastore).read(Path(source), {"name": "", "account_name": "", **values})
    # Report errors now, with the file's name.
    made.said()
    return made


def load_online_endpoint(
    source: str | os.PathLike[str], *, params_override: Overrides = None, **kwargs: Any
) -> ManagedOnlineEndpoint:
    """Load a file that describes an online endpoint."""
    values = _read(source, params_override)
    kind = KubernetesOnlineEndpoint if "compute" in values else ManagedOnlineEndpoint
    return kind.read(Path(source), values)


def load_online_deployment(
    source: str | os.PathLike[str], *, params_override: Overrides = None, **kwargs: Any
) -> ManagedOnlineDeployment:
    """Load a file that describes an online deployment; its paths are relative to the file."""
    values = _read(source, params_override)
    kind = KubernetesOnlineDeployment if values.get("type") == "kubernetes" else ManagedOnlineDeployment
    return kind.read(Path(source), values)


def load_batch_endpoint(
    source: str | os.PathLike[str], *, params_override: Overrides = None, **kwargs: Any
) -> BatchEndpoint:
    """Load a file that describes a batch endpoint."""
    return BatchEndpoint.read(Path(source), {"name": "", **_read(source, params_override)})


def load_batch_deployment(
    source: str | os.PathLike[str], *, params_override: Overrides = None, **kwargs: Any
) -> BatchDeployment:
    """Load a file that describes a batch deployment; its paths are relative to the file."""
    values = _read(source, params_override)
    return (ModelBatchDeployment if "settings" in values else BatchDeployment).read(Path(source), values)


def load_compute(source: str | os.PathLike[str], **kwargs: Any) -> AmlCompute:
    """Load a file that describes a cluster."""
    said = load_cluster_file(Path(source))
    if said.name is None:
        raise JobError(f"{source}: `name` is missing", "Write name: my-cluster.")
    options = {_COMPUTE_KEYS.get(key, key): value for key, value in said.options.items()}
    return AmlCompute(name=said.name, **options)  # type: ignore[arg-type]


def _read(source: str | os.PathLike[str], overrides: Overrides) -> dict[str, Value]:
    return _overridden(read_plain_file(Path(source)), overrides)


def _overridden(values: Mapping[str, Value], overrides: Overrides) -> dict[str, Value]:
    changed = dict(values)
    for override in overrides or ():
        for key, value in override.items():
            changed = _with_value(changed, key.split("."), value)
    return changed


def _with_value(values: Mapping[str, Value], keys: Sequence[str], value: Value) -> dict[str, Value]:
    key, *rest = keys
    if not rest:
        return {**values, key: value}
    inner = values.get(key)
    return {**values, key: _with_value(inner if isinstance(inner, Mapping) else {}, rest, value)}
