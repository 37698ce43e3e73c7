"""Batch deployments in Azure ML's format: the model, the script, and how data is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import located, mapping, read_asset_file
from muster.job.endpoints.values import texts
from muster.wire.codec import Json
from muster.wire.serving.batch import BatchSettings, OutputAction
from muster.wire.serving.endpoints import check_endpoint_name

_SILENT = ("$schema", "description", "tags", "properties", "logging_level", "id", "provisioning_state", "location")
_TUNING = (
    "mini_batch_size", "max_concurrency_per_instance", "output_action", "output_file_name", "retry_settings",
    "error_threshold", "environment_variables", "instance_count", "logging_level",
)  # fmt: skip
_KEYS = (
    "name", "endpoint_name", "model", "code_configuration", "environment", "compute", "resources", "settings", "type",
    *_TUNING,
)  # fmt: skip
_RETRY = ("max_retries", "timeout")
_SECTIONS: Mapping[str, Sequence[str]] = {
    "settings": _TUNING,
    "settings.retry_settings": _RETRY,
    "retry_settings": _RETRY,
    "code_configuration": ("code", "scoring_script"),
    "resources": ("instance_count", "instance_type", "properties"),
}
_ACTIONS: Mapping[str, OutputAction] = {
    "append_row": "append_row", "summary_only": "summary_only", "per_file": "per_file",
}  # fmt: skip
"""The last one is Muster's own."""
_DEFAULTS: Mapping[str, int] = {"max_concurrency_per_instance": 1, "error_threshold": -1, "instance_count": 1}
_USUAL_FILES = 10


@dataclass(frozen=True)
class BatchDeployment:
    """The content of a batch deployment's file."""

    name: str | None
    endpoint: str | None
    model: str | None
    """A reference, or a local path."""
    code: Path | None
    """The folder to upload; the settings name the script in it."""
    settings: BatchSettings
    environment: Json
    compute: str | None
    nodes: int
    procs: int
    variables: Mapping[str, str]
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def read_batch_deployment(file: Path) -> BatchDeployment:
    """Read a batch deployment; raises JobError with the file and the key."""
    return batch_deployment_of(file, read_asset_file(file, "batch deployment", _KEYS, _SILENT, _SECTIONS))


def batch_deployment_of(file: Path, values: Mapping[str, Json]) -> BatchDeployment:
    """A deployment from its values; paths are relative to the file's folder, and errors name the file."""
    if values.get("type") not in (None, "model"):
        raise JobError(f"{file}: type: {values['type']!r} cannot be scored", "Only deployments of models can.")
    # Older files have at the top level what newer ones have under `settings`.
    settings = {**values, **mapping(values, "settings")}
    nodes = mapping(values, "resources").get("instance_count", settings.get("instance_count"))
    script, code = _script(file, mapping(values, "code_configuration"))
    return BatchDeployment(
        _name(file, "name", values),
        _name(file, "endpoint_name", values),
        _model(file, values.get("model")),
        code,
        _settings(file, settings, script),
        values.get("environment"),
        None if values.get("compute") is None else str(values["compute"]).removeprefix("azureml:"),
        _whole(file, "instance_count", nodes, 1),
        _whole(file, "max_concurrency_per_instance", settings.get("max_concurrency_per_instance"), 1),
        texts(file, "environment_variables", settings),
        None if values.get("description") is None else str(values["description"]),
        texts(file, "tags", values),
    )


def _settings(file: Path, given: Mapping[str, Json], script: str) -> BatchSettings:
    retry, size = mapping(given, "retry_settings"), _USUAL_FILES if script else 0
    action = str(given.get("output_action") or "append_row").lower()
    if action not in _ACTIONS:
        raise JobError(f"{file}: output_action: {action!r} is not allowed", f"Allowed are {', '.join(_ACTIONS)}.")
    try:
        return BatchSettings(
            script,
            # Scripts of Azure ML open tables themselves: they get the paths of files of any format.
            format="files" if script else "",
            mini_batch_size=_whole(file, "mini_batch_size", given.get("mini_batch_size"), 1, default=size),
            output_action=_ACTIONS[action],
            output_file=str(given.get("output_file_name") or "predictions.csv"),
            max_retries=_whole(file, "max_retries", retry.get("max_retries"), 0, default=3),
            timeout_s=float(_whole(file, "timeout", retry.get("timeout"), 1, default=30)),
            error_threshold=_whole(file, "error_threshold", given.get("error_threshold"), -1),
        )
    except ValueError as error:
        raise JobError(f"{file}: {error}", "Correct it.") from error


def _name(file: Path, key: str, values: Mapping[str, Json]) -> str | None:
    given = values.get(key)
    if given is None:
        return None
    try:
        check_endpoint_name(str(given))
    except ValueError as error:
        raise JobError(f"{file}: {key}: {error}", "Choose another name.") from error
    return str(given)


def _model(file: Path, given: Json) -> str | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = given.get("path")
    if not isinstance(given, str):
        raise JobError(f"{file}: model: it has no path", "Write azureml:NAME:VERSION, or {path: ./model}.")
    return located(given, file.parent)


def _script(file: Path, given: Mapping[str, Json]) -> tuple[str, Path | None]:
    """The script's path in the folder of its code, and that folder."""
    if not given:
        return "", None
    code, script = given.get("code"), given.get("scoring_script")
    if not isinstance(script, str):
        raise JobError(f"{file}: code_configuration: scoring_script is missing", "Name the script in `code`.")
    folder = Path(located(str(code or "."), file.parent))
    if not (folder / script).is_file():
        found = folder / script
        raise JobError(f"{file}: code_configuration: there is no script {found}", "Correct code or scoring_script.")
    return script, folder


def _whole(file: Path, key: str, given: Json, least: int, default: int | None = None) -> int:
    if given is None:
        return _DEFAULTS[key] if default is None else default
    value = given
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"{file}: {key}: {given!r} is not a whole number of at least {least}", f"Write {key}: {least}.")
    return value
