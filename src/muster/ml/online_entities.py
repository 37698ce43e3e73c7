"""Online endpoints and deployments as v2 scripts make them, with the same keys as in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from muster.job.endpoints.deployment import DeploymentFile, deployment_of
from muster.job.endpoints.endpoint import EndpointFile, endpoint_of
from muster.job.endpoints.models import MODELS
from muster.ml.values import Value
from muster.sdk.model import Model
from muster.wire.codec import Json
from muster.wire.serving.endpoints import DeploymentView, EndpointKeys, EndpointView


class Described:
    """An entity that can also be described in a file: its keyword arguments are the file's keys."""

    _file: Path | None = None

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    @classmethod
    def read(cls, file: Path, values: Mapping[str, Value]) -> Self:
        """From a file's values by key; paths stay relative to the file."""
        made = cls(**{key: value for key, value in values.items() if not key.startswith("$")})
        made._file = file.absolute()
        return made

    @property
    def _where(self) -> Path:
        """The file that errors name, and whose folder paths are relative to."""
        return self._file or Path.cwd() / type(self).__name__

    def described(self) -> dict[str, Json]:
        """The values as in a file."""
        return {key: _plain(value) for key, value in vars(self).items() if value is not None and key[0] != "_"}


class CodeConfiguration(Described):
    """A folder, and the script in it that has `init()` and `run()`."""

    def __init__(self, code: str = ".", scoring_script: str = "score.py") -> None:
        super().__init__(code=str(code), scoring_script=str(scoring_script))


class OnlineRequestSettings(Described):
    """How a deployment handles requests."""


class ProbeSettings(Described):
    """How to check whether a replica is alive."""


class DefaultScaleSettings(Described):
    """As many replicas as `instance_count` says."""

    def __init__(self) -> None:
        super().__init__(type="default")


class TargetUtilizationScaleSettings(Described):
    """A number of replicas that follows the load."""

    def __init__(self, **values: Any) -> None:
        super().__init__(type="target_utilization", **values)


class RequestLogging(Described):
    """The headers that are stored with requests."""


class DeploymentCollection(Described):
    """One kind of data that is collected from requests."""


class DataCollector(Described):
    """What is collected from requests: collections by name, a share of the requests, folders by date."""

    def __init__(self, collections: Mapping[str, Any], **values: Any) -> None:
        super().__init__(collections=collections, **values)


class ManagedOnlineEndpoint(Described):
    """A permanent address with keys."""

    name: str
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    scoring_uri: str | None = None
    openapi_uri: str | None = None
    provisioning_state: str | None = None
    _view: EndpointView | None = None

    @classmethod
    def of(cls, view: EndpointView) -> ManagedOnlineEndpoint:
        """An existing endpoint; pass a changed one to `begin_create_or_update`."""
        made = cls(
            name=view.name, description=view.description, tags=dict(view.tags), properties=dict(view.properties),
            auth_mode=view.auth_mode, traffic=dict(view.traffic), mirror_traffic=dict(view.mirror_traffic),
            compute=view.compute, scoring_uri=view.scoring_uri, openapi_uri=view.openapi_uri,
            provisioning_state="Creating" if view.state == "starting" else "Succeeded",
        )  # fmt: skip
        made._view = view
        return made

    def __getattr__(self, name: str) -> Any:
        """Other attributes from the server: `state`, `deployments`, `run` and others."""
        return _of_view(self, name)

    def said(self) -> EndpointFile:
        """The endpoint, checked as if from a file; raises JobError."""
        return endpoint_of(self._where, self.described())


class KubernetesOnlineEndpoint(ManagedOnlineEndpoint):
    """An endpoint on a cluster that it names."""


class ManagedOnlineDeployment(Described):
    """A model that serves requests at an endpoint."""

    name: str
    endpoint_name: str
    instance_count: int
    scale_settings: Described | None
    request_settings: Described | None
    environment_variables: Mapping[str, str] | None
    provisioning_state: str | None = None
    _view: DeploymentView | None = None

    @classmethod
    def of(cls, view: DeploymentView, spec: Mapping[str, Json]) -> ManagedOnlineDeployment:
        """An existing deployment, with the job of its run; a changed one can be deployed again."""
        settings, limits = _settings(spec), view.limits
        made = cls(
            name=view.name, endpoint_name=view.endpoint, description=view.description, tags=dict(view.tags),
            instance_count=max(1, view.instances), model=_model(view, spec), compute=spec.get("compute"),
            environment_variables=_variables(spec), idempotent=limits.idempotent,
            nodes=view.nodes, code_configuration=_code(spec, settings), provisioning_state=_PROVISIONING[view.state],
            request_settings=OnlineRequestSettings(
                request_timeout_ms=limits.timeout_ms,
                max_concurrent_requests_per_instance=limits.concurrency,
                max_queue_wait_ms=limits.queue_wait_ms,
            ),
            scale_settings=_scale(view, settings),
            data_collector=_collector(settings),
        )  # fmt: skip
        if view.state == "serving" and not view.has_come_up:
            made.provisioning_state = "Failed"
        made._view = view
        return made

    def __getattr__(self, name: str) -> Any:
        """Other attributes from the server: `state`, `ready`, `run`, `why` and others."""
        return _of_view(self, name)

    def said(self) -> DeploymentFile:
        """The deployment, checked as if from a file; raises JobError. Paths are relative to its file or to `.`."""
        return deployment_of(self._where, self.described())


class KubernetesOnlineDeployment(ManagedOnlineDeployment):
    """A deployment on a cluster that its endpoint names."""


class EndpointAuthKeys:
    """The two keys of an endpoint."""

    def __init__(self, primary_key: str | None = None, secondary_key: str | None = None) -> None:
        self.primary_key = self.primary = primary_key
        self.secondary_key = self.secondary = secondary_key


class EndpointAuthToken:
    """A token that gives access to an endpoint for a limited time."""

    def __init__(self, access_token: str | None = None, expiry_time_utc: float = 0, **kwargs: Any) -> None:
        self.access_token = self.token = access_token
        self.expiry_time_utc = self.expires_at = expiry_time_utc
        self.token_type = "Bearer"


def keys_of(found: EndpointKeys) -> EndpointAuthKeys | EndpointAuthToken:
    """The keys or token of an endpoint, under Azure ML's names."""
    if found.token is not None:
        return EndpointAuthToken(found.token, found.expires_at or 0)
    return EndpointAuthKeys(found.primary, found.secondary)


_PROVISIONING = {
    "starting": "Creating",
    "updating": "Updating",
    "serving": "Succeeded",
    "failed": "Failed",
    "stopped": "Canceled",
}


def _of_view(entity: Any, name: str) -> Any:
    view = vars(entity).get("_view")
    if name.startswith("_") or view is None:
        raise AttributeError(f"{type(entity).__name__} has no {name!r}: it was not given")
    return getattr(view, name)


def _settings(spec: Mapping[str, Json]) -> Mapping[str, Json]:
    """The replicas' settings: the one argument of their command."""
    command = spec.get("command")
    found = json.loads(command[3]) if isinstance(command, list) and len(command) > 3 else {}
    return found if isinstance(found, Mapping) else {}


def _model(view: DeploymentView, spec: Mapping[str, Json]) -> str | None:
    if view.model is not None:
        return f"azureml:{view.model}"
    inputs = spec.get("inputs")
    given = inputs.get("model") if isinstance(inputs, Mapping) else None
    return str(given["path"]) if isinstance(given, Mapping) and given.get("path") else None


def _variables(spec: Mapping[str, Json]) -> dict[str, Json]:
    """The given environment variables, without the one that lists the replicas' models."""
    found = spec.get("environment_variables")
    return {key: value for key, value in found.items() if key != MODELS} if isinstance(found, Mapping) else {}


def _code(spec: Mapping[str, Json], settings: Mapping[str, Json]) -> CodeConfiguration | None:
    script = settings.get("script")
    return CodeConfiguration(str(spec.get("code") or "."), str(script)) if script else None


def _scale(view: DeploymentView, settings: Mapping[str, Json]) -> Described:
    if view.max_instances == view.instances:
        return DefaultScaleSettings()
    target, idle_s = settings.get("target_percent"), settings.get("idle_s")
    return TargetUtilizationScaleSettings(
        min_instances=view.instances,
        max_instances=view.max_instances,
        target_utilization_percentage=round(target) if isinstance(target, int | float) else 70,
        idle_s=idle_s,
    )


def _collector(settings: Mapping[str, Json]) -> DataCollector | None:
    names = settings.get("collections")
    if not isinstance(names, list) or not names:
        return None
    return DataCollector(
        {str(name): DeploymentCollection(enabled=True) for name in names},
        sampling_rate=settings.get("sampling_rate"),
        rolling_rate=settings.get("rolling_rate"),
        request_logging=RequestLogging(capture_headers=settings.get("captured_headers")),
    )


def _plain(value: Any) -> Json:
    """A script's value in the form that a file has."""
    if isinstance(value, Model):
        return f"azureml:{value.name}:{value.version}"
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    plain: Json = value.described() if hasattr(value, "described") else value
    return plain
