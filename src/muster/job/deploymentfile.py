"""Batch deployments as Azure ML writes them: what is scored with which model and script, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import located, mapping, read_asset_file
from muster.wire.codec import Json

_KEYS = (
    "name", "endpoint_name", "model", "code_configuration", "environment", "compute", "resources", "settings", "type",
    "mini_batch_size", "max_concurrency_per_instance", "output_action", "output_file_name", "retry_settings",
    "error_threshold", "environment_variables", "instance_count",
)  # fmt: skip
_SILENT = ("$schema", "description", "tags", "properties", "logging_level")
_ACTIONS = ("append_row", "summary_only")
_DEFAULTS: Mapping[str, int] = {
    "mini_batch_size": 10, "max_concurrency_per_instance": 1, "error_threshold": -1, "instance_count": 1,
}  # fmt: skip


@dataclass(frozen=True)
class BatchDeployment:
    """What a batch deployment's file says."""

    model: str | None
    """A reference, or a local path."""
    script: Path | None
    environment: Json
    compute: str | None
    nodes: int
    procs: int
    mini_batch_size: int
    output_action: str
    output_file: str
    max_retries: int
    timeout_s: float
    error_threshold: int
    variables: Mapping[str, str]


def read_batch_deployment(file: Path) -> BatchDeployment:
    """Read a batch deployment; raises JobError that names the file and the key."""
    values = read_asset_file(file, "batch deployment", _KEYS, _SILENT)
    if values.get("type") not in (None, "model"):
        raise JobError(f"{file}: type: {values['type']!r} cannot be scored", "Only deployments of models can.")
    # Older files have at their root what newer ones have below `settings`.
    settings = {**values, **mapping(values, "settings")}
    retry = mapping(settings, "retry_settings")
    action = str(settings.get("output_action") or "append_row").lower()
    if action not in _ACTIONS:
        raise JobError(f"{file}: output_action: {action!r} is not allowed", f"Allowed are {', '.join(_ACTIONS)}.")
    nodes = mapping(values, "resources").get("instance_count", settings.get("instance_count"))
    return BatchDeployment(
        _model(file, values.get("model")),
        _script(file, mapping(values, "code_configuration")),
        values.get("environment"),
        None if values.get("compute") is None else str(values["compute"]),
        _whole(file, "instance_count", nodes, 1),
        _whole(file, "max_concurrency_per_instance", settings.get("max_concurrency_per_instance"), 1),
        _whole(file, "mini_batch_size", settings.get("mini_batch_size"), 1),
        action,
        str(settings.get("output_file_name") or "predictions.csv"),
        _whole(file, "max_retries", retry.get("max_retries"), 0, default=3),
        float(_whole(file, "timeout", retry.get("timeout"), 1, default=30)),
        _whole(file, "error_threshold", settings.get("error_threshold"), -1),
        {key: str(value) for key, value in mapping(settings, "environment_variables").items()},
    )


def _model(file: Path, given: Json) -> str | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = given.get("path")
    if not isinstance(given, str):
        raise JobError(f"{file}: model: it has no path", "Write azureml:NAME:VERSION, or {path: ./model}.")
    return located(given, file.parent)


def _script(file: Path, given: Mapping[str, Json]) -> Path | None:
    if not given:
        return None
    code, script = given.get("code"), given.get("scoring_script")
    if not isinstance(script, str):
        raise JobError(f"{file}: code_configuration: scoring_script is missing", "Name the script in `code`.")
    found = Path(located(str(code or "."), file.parent)) / script
    if not found.is_file():
        raise JobError(f"{file}: code_configuration: there is no script {found}", "Correct code or scoring_script.")
    return found


def _whole(file: Path, key: str, given: Json, least: int, default: int | None = None) -> int:
    value = _DEFAULTS.get(key, default) if given is None else given
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"{file}: {key}: {given!r} is no whole number of at least {least}", f"Write {key}: {least}.")
    return value
