"""Batch endpoint files: a name, a description, tags, and the default deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import read_asset_file
from muster.job.endpoints.values import refuse, section, texts
from muster.wire.codec import Json
from muster.wire.serving.endpoints import check_endpoint_name

_KEYS = ("name", "description", "tags", "properties", "auth_mode", "defaults")
_SILENT = ("$schema", "id", "scoring_uri", "openapi_uri", "provisioning_state", "location", "kind")
_DEFAULTS = ("deployment_name",)
_AUTH_MODES = ("aad_token",)


@dataclass(frozen=True)
class BatchEndpointFile:
    """The content of a batch endpoint's file."""

    name: str
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    default_deployment: str | None = None


def read_batch_endpoint_file(file: Path, name: str | None = None) -> BatchEndpointFile:
    """Read a batch endpoint's file; raises JobError with the file and the key."""
    values = read_asset_file(file, "batch endpoint", _KEYS, _SILENT, {"defaults": _DEFAULTS})
    return batch_endpoint_of(file, values, name)


def batch_endpoint_of(file: Path, values: Mapping[str, Json], name: str | None = None) -> BatchEndpointFile:
    """A batch endpoint from its values; errors name the file."""
    given = name or values.get("name")
    if not isinstance(given, str):
        raise JobError(f"{file}: `name` is missing, or is no text", "Write name: my-endpoint, or give the name.")
    mode = str(values.get("auth_mode") or _AUTH_MODES[0]).lower()
    if mode not in _AUTH_MODES:
        raise refuse(
            file,
            "auth_mode",
            f"{mode!r} is not allowed",
            "A batch endpoint only has aad_token: everybody who may submit runs may invoke it.",
        )
    try:
        check_endpoint_name(given)
    except ValueError as error:
        raise JobError(f"{file}: {error}", "Choose another name.") from error
    chosen = section(file, values, "defaults", _DEFAULTS).get("deployment_name")
    return BatchEndpointFile(
        given,
        None if values.get("description") is None else str(values["description"]),
        texts(file, "tags", values),
        texts(file, "properties", values),
        None if chosen is None else str(chosen),
    )
