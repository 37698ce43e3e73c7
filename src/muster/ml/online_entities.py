"""Online endpoints and deployments as v2 scripts make them: what a file could say too, under the same keys."""

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
    """Something that a file could say too: its keyword arguments are the file's keys."""

    _file: Path | None = None

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    @classmethod
    def read(cls, file: Path, values: Mapping[str, Value]) -> Self:
        """From a file's values, by its keys; paths stay relative to the file."""
        made = cls(**{key: value for key, value in values.items() if not key.startswith("$")})
        made._file = file.absolute()
        return made

    @property
    def _where(self) -> Path:
        """What paths are relative to the folder of, and what errors name."""
        return self._file or Path.cwd() / type(self).__name__

    def described(self) -> dict[str, Json]:
        """The values as a file has them."""
        return {key: _plain(value) for key, value in vars(self).items() if value is not None and key[0] != "_"}


class CodeConfiguration(Described):
    """A folder, and the script in it that has `init()` and `run()`."""

    def __init__(self, code: str = ".", scoring_script: str = "score.py") -> None:
        super().__init__(code=str(code), scoring_script=str(scoring_script))


class OnlineRequestSettings(Described):
    """How requests to a deployment are taken."""


class ProbeSettings(Described):
    """How it is found out whether a replica lives."""


class DefaultScaleSettings(Described):
    """As many replicas as `instance_count` says."""

    def __init__(self) -> None:
        super().__init__(type="default")


class TargetUtilizationScaleSettings(Described):
    """A number of replicas that follows the load."""

    def __init__(self, **values: Any) -> None:
        super().__init__(type="target_utilization", **values)


class RequestLogging(Described):
    """Headers that are kept with requests."""


class DeploymentCollection(Described):
    """One of the things that are kept of requests."""


class DataCollector(Described):
    """What is kept of requests: collections by their names, a share of the requests, folders by date."""

    def __init__(self, collections: Mapping[str, Any], **values: Any) -> None:
        super().__init__(collections=collections, **values)


class ManagedOnlineEndpoint(Described):
    """An address that stays, with keys."""

    name: str
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    scoring_uri: str | None = None
    openapi_uri: str | None = None
    provisioning_state: str | None = None
    _view: EndpointView | None = None

    @classmethod
    def of(cls, view: EndpointView) -> ManagedOnlineEndpoint:
        """An endpoint that is there: what is changed in it, `begin_create_or_update` takes."""
        made = cls(
            name=view.name, description=view.description, tags=dict(view.tags), properties=dict(view.properties),
            auth_mode=view.auth_mode, traffic=dict(view.traffic), mirror_traffic=dict(view.mirror_traffic),
            compute=view.compute, scoring_uri=view.scoring_uri, openapi_uri=view.openapi_uri,
            provisioning_state="Creating" if view.state == "starting" else "Succeeded",
        )  # fmt: skip
        made._view = view
        return made

    def __getattr__(self, name: str) -> Any:
        """What else the server said of it: `state`, `deployments`, `run` and others."""
        return _of_view(self, name)

    def said(self) -> EndpointFile:
        """Checked, as from a file; raises JobError."""
        return endpoint_of(self._where, self.described())


class KubernetesOnlineEndpoint(ManagedOnlineEndpoint):
    """The same on a cluster that it names."""


class ManagedOnlineDeployment(Described):
    """A model that answers at an endpoint."""

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
        """A deployment that is there, with the job of its run: what is changed in it can be deployed again."""
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
        """What else the server said of it: `state`, `ready`, `run`, `why` and others."""
        return _of_view(self, name)

    def said(self) -> DeploymentFile:
        """Checked, as from a file; raises JobError. Paths are relative to the current folder, or to its file's."""
        return deployment_of(self._where, self.described())


class KubernetesOnlineDeployment(ManagedOnlineDeployment):
    """The same on a cluster that its endpoint names."""


class EndpointAuthKeys:
    """The two keys of an endpoint."""

    def __init__(self, primary_key: str | None = None, secondary_key: str | None = None) -> None:
        self.primary_key = self.primary = primary_key
        self.secondary_key = self.secondary = secondary_key


class EndpointAuthToken:
    """A token that opens an endpoint for a while."""

    def __init__(self, access_token: str | None = None, expiry_time_utc: float = 0, **kwargs: Any) -> None:
        self.access_token = self.token = access_token
        self.expiry_time_utc = self.expires_at = expiry_time_utc
        self.token_type = "Bearer"


def keys_of(found: EndpointKeys) -> EndpointAuthKeys | EndpointAuthToken:
    """What opens an endpoint, with Azure ML's names."""
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
    """What the replicas were told: the one argument of their command."""
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
    """Those that were given, without what tells replicas of their models."""
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
    """A value of a script as a file has it."""
    if isinstance(value, Model):
        return f"azureml:{value.name}:{value.version}"
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    plain: Json = value.described() if hasattr(value, "described") else value
    return plain
