"""Online deployment files: a model, a script, an environment, the number of replicas, limits of requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import located, read_asset_file
from muster.job.endpoints.models import MODELS, ModelInput
from muster.job.endpoints.values import flag, mappings, refuse, seconds, section, texts, whole
from muster.wire.codec import Json
from muster.wire.serving.collected import COLLECTION, ROLLING_RATES
from muster.wire.serving.endpoints import RequestLimits, check_endpoint_name

_KEYS = (
    "name", "endpoint_name", "model", "code_configuration", "environment", "environment_variables", "instance_type",
    "instance_count", "scale_settings", "request_settings", "liveness_probe", "readiness_probe", "resources", "type",
    "description", "tags", "compute", "idempotent", "max_batch", "max_wait_ms", "model_mount_path", "data_collector",
    "egress_public_network_access", "app_insights_enabled", "nodes",
)  # fmt: skip
_SILENT = ("$schema", "id", "properties", "provisioning_state", "location", "kind")
_OF_THE_SERVER = {
    "WORKER_COUNT": "instance_count says how many processes serve",
    "WORKER_TIMEOUT": "request_settings.request_timeout_ms says how long a request may take",
    "SCORING_TIMEOUT_MS": "request_settings.request_timeout_ms says how long a request may take",
    "WORKER_PRELOAD": "each replica loads the model itself",
}
"""The variables that Azure ML's inference server reads, besides AML_CORS_ORIGINS."""
_PROBE = ("period", "initial_delay", "timeout", "success_threshold", "failure_threshold")
_SCALE = ("type", "min_instances", "max_instances", "target_utilization_percentage", "polling_interval", "idle_s")
_LIMITS = ("request_timeout_ms", "max_concurrent_requests_per_instance", "max_queue_wait_ms")
_AMOUNTS = ("cpu", "memory", "nvidia.com/gpu")
_SECTIONS: Mapping[str, Sequence[str]] = {
    "code_configuration": ("code", "scoring_script"),
    "request_settings": _LIMITS,
    "scale_settings": _SCALE,
    "liveness_probe": _PROBE,
    "readiness_probe": _PROBE,
    "resources": ("requests", "limits"),
    "resources.requests": _AMOUNTS,
    "resources.limits": _AMOUNTS,
    "data_collector": ("collections", "rolling_rate", "sampling_rate", "request_logging"),
    "data_collector.request_logging": ("capture_headers",),
}
_OWN_SERVER = "inference_config"
_OURS = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "SERVE_KEY", MODELS)
_REFUSED: Mapping[str, tuple[str, str]] = {
    "model_mount_path": ("models lie where AZUREML_MODEL_DIR says", "Leave it out, and read that variable in init()."),
}


@dataclass(frozen=True)
class Scaling:
    """The number of replicas, and how it follows the load."""

    least: int = 1
    most: int = 1
    target_percent: int = 70
    polling_s: float = 1.0
    idle_s: float = 30.0
    """How long fewer replicas must be enough before one is ended."""


@dataclass(frozen=True)
class Probe:
    """How replicas are checked for life."""

    period_s: float = 10.0
    delay_s: float = 10.0
    timeout_s: float = 2.0
    failures: int = 30


@dataclass(frozen=True)
class Collecting:
    """The requests and answers to keep."""

    collections: tuple[str, ...] = ()
    sampling_rate: float = 1.0
    rolling_rate: str = "hour"
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeploymentFile:
    """The content of an online deployment's file."""

    name: str
    endpoint: str
    model: str | None
    """A reference, or a local path."""
    script: Path | None
    code: Path | None
    """The folder to upload; the script is named relative to it."""
    environment: Json
    variables: Mapping[str, str]
    compute: str | None
    gpus: float | None
    """GPUs of its node; below 1: this part of one GPU."""
    scaling: Scaling
    limits: RequestLimits
    """`idempotent` as given in the file; see `says_idempotent`."""
    says_idempotent: bool
    probe: Probe = field(default_factory=Probe)
    max_batch: int = 1
    max_wait_ms: float = 5.0
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    collecting: Collecting = field(default_factory=Collecting)
    nodes: int = 1
    """The number of nodes that share the replicas."""
    more_models: tuple[ModelInput, ...] = ()
    """For services of v1, which may have several models."""


def read_deployment_file(file: Path, endpoint: str | None = None, name: str | None = None) -> DeploymentFile:
    """Read an online deployment's file; raises JobError with the file and the key."""
    return deployment_of(file, read_asset_file(file, "online deployment", _KEYS, _SILENT, _SECTIONS), endpoint, name)


def deployment_of(
    file: Path, values: Mapping[str, Json], endpoint: str | None = None, name: str | None = None
) -> DeploymentFile:
    """A deployment from its values; paths are relative to the file's folder, and errors name the file."""
    for key, (why, hint) in _REFUSED.items():
        if values.get(key) is not None:
            raise refuse(file, key, why, hint)
    names = [_name(file, "name", name or values.get("name"))]
    names.append(_name(file, "endpoint_name", endpoint or values.get("endpoint_name")))
    script, code = _script(file, values)
    variables = texts(file, "environment_variables", values)
    for taken in _OURS:
        if taken in variables:
            raise refuse(file, f"environment_variables.{taken}", "replicas need it themselves", "Set it in the script.")
    nodes = whole(file, "nodes", values.get("nodes"), 1, 1, 1024)
    scaling = _scaling(file, values, nodes)
    return DeploymentFile(
        names[0],
        names[1],
        _model(file, values.get("model")),
        script,
        code,
        _environment(file, values, script),
        variables,
        None if values.get("compute") is None else str(values["compute"]).removeprefix("azureml:"),
        _gpus(file, values),
        scaling,
        _limits(file, values),
        values.get("idempotent") is not None,
        _probe(file, values),
        whole(file, "max_batch", values.get("max_batch"), 1, 1),
        seconds(file, "max_wait_ms", values.get("max_wait_ms"), 5.0),
        None if values.get("description") is None else str(values["description"]),
        texts(file, "tags", values),
        tuple(_notices(values)),
        _collecting(file, values),
        nodes,
    )


def _name(file: Path, key: str, given: Json) -> str:
    if not isinstance(given, str):
        raise JobError(f"{file}: `{key}` is missing, or is no text", f"Write {key}: …, or give it as an option.")
    try:
        check_endpoint_name(given)
    except ValueError as error:
        raise JobError(f"{file}: {key}: {error}", "Choose another name.") from error
    return given


def _model(file: Path, given: Json) -> str | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = given.get("path")
    if not isinstance(given, str):
        raise refuse(file, "model", "it has no path", "Write azureml:NAME:VERSION, or {path: ./model}.")
    if given.startswith("azureml://registries/"):
        raise refuse(file, "model", "registries of Azure are not reached", "Register the model here, and name it.")
    return located(given, file.parent)


def _script(file: Path, values: Mapping[str, Json]) -> tuple[Path | None, Path | None]:
    given = section(file, values, "code_configuration", _SECTIONS["code_configuration"])
    if not given:
        return None, None
    code, script = given.get("code"), given.get("scoring_script")
    if not isinstance(script, str):
        raise refuse(file, "code_configuration", "scoring_script is missing", "Name the script in `code`.")
    folder = Path(located(str(code or "."), file.parent))
    if not (folder / script).is_file():
        raise refuse(
            file, "code_configuration", f"there is no script {folder / script}", "Correct code or scoring_script."
        )
    return Path(script), folder


def _environment(file: Path, values: Mapping[str, Json], script: Path | None) -> Json:
    """The environment of the replicas. If a script answers, an image's own server is not needed."""
    given = values.get("environment")
    if not isinstance(given, Mapping) or given.get(_OWN_SERVER) is None:
        return given
    if script is None:
        why = "the image's own server is not run: Muster's own answers, by a script or for an MLflow model"
        hint = "Leave it out, and add code_configuration: {code: ./src, scoring_script: score.py}."
        raise refuse(file, f"environment.{_OWN_SERVER}", why, hint)
    return {key: value for key, value in given.items() if key != _OWN_SERVER}


def _limits(file: Path, values: Mapping[str, Json]) -> RequestLimits:
    keys = _LIMITS
    given = section(file, values, "request_settings", keys)
    timeout, concurrency, wait = (given.get(key) for key in keys)
    return RequestLimits(
        whole(file, f"request_settings.{keys[0]}", timeout, 5000, 1, 3_600_000),
        whole(file, f"request_settings.{keys[1]}", concurrency, 1, 1, 100_000),
        whole(file, f"request_settings.{keys[2]}", wait, 500, 0, 3_600_000),
        flag(file, "idempotent", values.get("idempotent"), False),
    )


def _scaling(file: Path, values: Mapping[str, Json], nodes: int) -> Scaling:
    found = _replicas(file, values, nodes)
    for key, count in (("replicas (instance_count, min_instances)", found.least), ("max_instances", found.most)):
        if count % nodes:
            why = f"{nodes} nodes cannot share {count} evenly as {key}"
            raise refuse(file, "nodes", why, f"Use a multiple of {nodes}, such as {math.ceil(count / nodes) * nodes}.")
    return found


def _replicas(file: Path, values: Mapping[str, Json], nodes: int) -> Scaling:
    count = whole(file, "instance_count", values.get("instance_count"), nodes, 1, 1024)
    given = section(file, values, "scale_settings", _SCALE)
    kind = str(given.get("type") or "default").lower()
    if kind == "default":
        return Scaling(count, count)
    if kind != "target_utilization":
        raise refuse(file, "scale_settings.type", f"{kind!r} is not allowed", "Allowed: default, target_utilization.")
    least = whole(file, "scale_settings.min_instances", given.get("min_instances"), nodes, 0, 1024)
    most = whole(
        file, "scale_settings.max_instances", given.get("max_instances"), max(nodes, least), max(1, least), 1024
    )
    share = given.get("target_utilization_percentage")
    return Scaling(
        least,
        most,
        whole(file, "scale_settings.target_utilization_percentage", share, 70, 1, 100),
        max(0.1, seconds(file, "scale_settings.polling_interval", given.get("polling_interval"), 1.0)),
        max(1.0, seconds(file, "scale_settings.idle_s", given.get("idle_s"), 30.0)),
    )


def _probe(file: Path, values: Mapping[str, Json]) -> Probe:
    section(file, values, "readiness_probe", _PROBE)
    given = section(file, values, "liveness_probe", _PROBE)
    return Probe(
        max(1.0, seconds(file, "liveness_probe.period", given.get("period"), 10.0)),
        seconds(file, "liveness_probe.initial_delay", given.get("initial_delay"), 10.0),
        max(0.1, seconds(file, "liveness_probe.timeout", given.get("timeout"), 2.0)),
        whole(file, "liveness_probe.failure_threshold", given.get("failure_threshold"), 30, 1),
    )


def _collecting(file: Path, values: Mapping[str, Json]) -> Collecting:
    given = section(file, values, "data_collector", _SECTIONS["data_collector"])
    wanted = []
    for name, item in mappings(file, "data_collector.collections", given.get("collections")).items():
        key = f"data_collector.collections.{name}"
        if not COLLECTION.fullmatch(name):
            raise refuse(file, key, "that is no name of a collection", "Use letters, digits, - and _.")
        if item.get("data") is not None or item.get("client_id") is not None:
            where = "azureml://datastores/workspaceblobstore/paths/modelDataCollector"
            raise refuse(file, key, "`data` and `client_id` are not used", f"Leave them out: it goes to {where}.")
        if str(item.get("enabled", "false")).lower() == "true":
            wanted.append(name)
    rolling = str(given.get("rolling_rate") or "hour").lower()
    if rolling not in ROLLING_RATES:
        hint = f"Allowed: {', '.join(ROLLING_RATES)}."
        raise refuse(file, "data_collector.rolling_rate", f"{rolling!r} is not allowed", hint)
    logging = section(file, given, "data_collector.request_logging", _SECTIONS["data_collector.request_logging"])
    headers = logging.get("capture_headers") or []
    if not isinstance(headers, Sequence) or isinstance(headers, str):
        raise refuse(file, "data_collector.request_logging.capture_headers", "it is no list", "Write a list of names.")
    rate = given.get("sampling_rate", 1.0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise refuse(file, "data_collector.sampling_rate", f"{rate!r} is not from 0 to 1", "Write 0.1 for a tenth.")
    return Collecting(tuple(wanted), float(rate), rolling, tuple(map(str, headers)))


def _gpus(file: Path, values: Mapping[str, Json]) -> float | None:
    resources = section(file, values, "resources", _SECTIONS["resources"])
    amounts = _AMOUNTS
    found = [section(file, resources, f"resources.{name}", amounts).get(amounts[2]) for name in ("limits", "requests")]
    given = next((item for item in found if item is not None), None)
    if isinstance(given, float) and 0.01 <= given < 1:
        return given
    return None if given is None else whole(file, "resources.nvidia.com/gpu", given, 0, 0)


def _notices(values: Mapping[str, Json]) -> list[str]:
    said = []
    if values.get("instance_type") is not None:
        said.append("instance_type has no effect: the replicas run where `compute` says (--compute)")
    if values.get("readiness_probe") is not None:
        said.append("readiness_probe has no effect: a replica is ready once init() has returned and it listens")
    if values.get("app_insights_enabled"):
        said.append("app_insights_enabled has no effect: `muster endpoint logs` and /metrics have what there is")
    if values.get("egress_public_network_access") is not None:
        said.append("egress_public_network_access has no effect: replicas reach what their node reaches")
    environment = values.get("environment")
    if isinstance(environment, Mapping) and environment.get(_OWN_SERVER) is not None:
        said.append(f"environment.{_OWN_SERVER} has no effect: Muster's own server answers, at /score")
    resources = values.get("resources")
    if isinstance(resources, Mapping) and any(
        isinstance(part, Mapping) and ({"cpu", "memory"} & set(part)) for part in resources.values()
    ):
        said.append("resources: cpu and memory are not limited; only nvidia.com/gpu is reserved")
    variables = values.get("environment_variables")
    said += [
        f"environment_variables.{name} has no effect: {instead}"
        for name, instead in _OF_THE_SERVER.items()
        if isinstance(variables, Mapping) and name in variables
    ]
    return said
