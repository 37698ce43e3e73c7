"""Models that answer requests, under v1's names: each service is an endpoint with one deployment."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from muster.client.endpoints.asking import invoke
from muster.client.endpoints.calls import Endpoints, new_endpoint
from muster.client.endpoints.deploying import deploy as send_deployment
from muster.client.endpoints.logs import last_lines
from muster.errors import Conflict, JobError, NotFound, RunFailed, UserError
from muster.job.endpoints.deployment import DeploymentFile, deployment_of
from muster.job.endpoints.models import ModelInput, last_part
from muster.sdk.connected import Connected
from muster.sdk.environment import Environment, to_spec
from muster.sdk.notices import tell
from muster.wire.codec import Json
from muster.wire.serving.endpoints import DeploymentView, EndpointView

_DEPLOYMENT = "default"
_LOOK_S = 0.2
_STATES = {
    "starting": "Transitioning",
    "updating": "Transitioning",
    "serving": "Healthy",
    "failed": "Failed",
    "stopped": "Unhealthy",
}
_WITHOUT_EFFECT = (
    "cpu_cores", "cpu_cores_limit", "memory_gb", "memory_gb_limit", "location", "ssl_enabled", "ssl_cert_pem_file",
    "ssl_key_pem_file", "ssl_cname", "dns_name_label", "vnet_name", "subnet_name", "collect_model_data", "namespace",
    "enable_app_insights", "cmk_vault_base_url", "cmk_key_name", "cmk_key_version", "compute_target_name",
)  # fmt: skip


class Registered(Protocol):
    """A registered model."""

    name: str
    version: int
    path: str


class InferenceConfig:
    """A script with `init()` and `run()`, the folder that it needs, and its environment."""

    def __init__(
        self,
        entry_script: str,
        runtime: str | None = None,
        conda_file: str | None = None,
        extra_docker_file_steps: str | None = None,
        source_directory: str | None = None,
        enable_gpu: bool | None = None,
        description: str | None = None,
        base_image: str | None = None,
        base_image_registry: Any = None,
        cuda_version: str | None = None,
        environment: Environment | None = None,
    ) -> None:
        if extra_docker_file_steps is not None:
            raise JobError("extra_docker_file_steps: images are not built for services", "Give environment= instead.")
        self.entry_script = entry_script
        self.source_directory = source_directory
        self.conda_file = conda_file
        self.enable_gpu = bool(enable_gpu)
        self.description = description
        self.base_image = base_image
        self.environment = environment

    def described(self) -> dict[str, Json]:
        """The same as keys of a deployment's file."""
        folder = Path(self.source_directory or ".").expanduser()
        found: dict[str, Json] = {
            "code_configuration": {"code": str(folder), "scoring_script": str(self.entry_script)},
            "description": self.description,
        }
        if self.environment is not None:
            found["environment"], notices = to_spec(self.environment)
            found["environment_variables"] = dict(self.environment.environment_variables)
            for text in notices:
                tell(text)
        elif self.conda_file is not None:
            found["environment"] = {"conda_file": str(folder / self.conda_file)}
        elif self.base_image is not None:
            found["environment"] = {"image": self.base_image}
        if self.enable_gpu:
            found["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        return found


@dataclass(frozen=True)
class DeploymentConfiguration:
    """How a service runs: the result of `deploy_configuration`."""

    kind: str
    """`local`, `aci` or `aks`."""
    values: Mapping[str, Json] = field(default_factory=dict)
    """Keys of a deployment's file."""
    port: int = 0
    auth_mode: str = "key"
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


@dataclass(frozen=True)
class Deployed:
    """The parts of a service's last deployment."""

    models: Sequence[Registered]
    inference: InferenceConfig | None
    config: DeploymentConfiguration
    compute: str | None = None


class Webservice:
    """A model that answers requests."""

    _deployed: Deployed | None = None

    def __init__(self, workspace: Connected, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self.update_deployment_state()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, state={self.state!r})"

    @staticmethod
    def list(workspace: Connected, **kwargs: Any) -> list[Webservice]:
        """The services of a workspace: endpoints that have a service's deployment."""
        found = Endpoints(workspace.client.calls).list()
        return [Webservice(workspace, view.name) for view in found if _deployment(view) is not None]

    def update_deployment_state(self) -> None:
        """Fetch the current state."""
        self._view = Endpoints(self.workspace.client.calls).show(self.name)

    @property
    def scoring_uri(self) -> str | None:
        """The address for requests, which need a key: `get_keys()`."""
        return self._view.scoring_uri

    @property
    def swagger_uri(self) -> str | None:
        return self._view.openapi_uri

    @property
    def state(self) -> str:
        """`Transitioning`, `Healthy`, `Unhealthy` or `Failed`."""
        found = _deployment(self._view)
        return "Unhealthy" if found is None else _STATES[found.state]

    @property
    def tags(self) -> dict[str, str]:
        return dict(self._view.tags)

    def wait_for_deployment(self, show_output: bool = False, timeout_sec: float | None = None) -> None:
        """Wait until the service answers; raises RunFailed if it does not start."""
        deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            self.update_deployment_state()
            found = _deployment(self._view)
            if found is not None and found.has_come_up and self._view.state != "starting":
                if show_output:
                    print(f"{self.name} answers on {self.scoring_uri}")
                return
            if found is None or found.has_failed:
                why = found.why if found is not None and found.why else "see get_logs()"
                raise RunFailed(f"the service {self.name} did not come up: {why}")
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the service {self.name} is {found.state} after {timeout_sec:g} s")
            time.sleep(_LOOK_S)

    def run(self, input_data: str | bytes | Mapping[str, Json] | Sequence[Json]) -> Any:
        """Send a request with the service's key; returns the answer, decoded if it is JSON."""
        body = input_data if isinstance(input_data, str | bytes) else json.dumps(input_data)
        calls = Endpoints(self.workspace.client.calls)
        answer = invoke(calls, self.name, body.encode() if isinstance(body, str) else body)
        if answer.status >= 400:
            raise UserError(f"{self.name} answered {answer.status}: {answer.text[:500]}", "`get_logs()` has why.")
        try:
            return json.loads(answer.text)
        except ValueError:
            return answer.text

    def get_keys(self) -> tuple[str | None, str | None]:
        """The primary and the secondary key."""
        found = Endpoints(self.workspace.client.calls).keys(self.name)
        return found.primary, found.secondary

    def regen_key(self, key: str) -> None:
        """Replace a key by a new one: `Primary` or `Secondary`."""
        if key.lower() not in ("primary", "secondary"):
            raise UserError(f"there is no {key} key", "Keys are Primary and Secondary.")
        calls = Endpoints(self.workspace.client.calls)
        calls.renew_key(self.name, "primary" if key.lower() == "primary" else "secondary")

    def get_token(self) -> tuple[str | None, float | None]:
        """A token and the time to ask for the next one, if the service uses tokens."""
        found = Endpoints(self.workspace.client.calls).keys(self.name)
        return found.token, found.expires_at

    def get_logs(self, num_lines: int = 5000, **kwargs: Any) -> str:
        """The last lines that the replicas printed."""
        self.update_deployment_state()
        found = _deployment(self._view)
        return last_lines(self.workspace.client, found, num_lines)

    def update(
        self,
        models: Sequence[Registered] | None = None,
        inference_config: InferenceConfig | None = None,
        deployment_config: DeploymentConfiguration | None = None,
        **kwargs: Any,
    ) -> None:
        """Replace the deployment without losing a request."""
        if models is None and inference_config is None:
            raise UserError("update() needs what to deploy", "Give models=[…] and inference_config=…, as to deploy().")
        config = deployment_config or LocalWebservice.deploy_configuration()
        compute = self._deployed.compute if self._deployed is not None else None
        self._deployed = Deployed(models or [], inference_config, config, compute)
        _send(self.workspace, _said(self.name, self._deployed))
        self.update_deployment_state()

    def delete(self, **kwargs: Any) -> None:
        """Delete the service; its run and log stay."""
        Endpoints(self.workspace.client.calls).delete(self.name)


class LocalWebservice(Webservice):
    """A service on this machine."""

    @staticmethod
    def deploy_configuration(port: int | None = None) -> DeploymentConfiguration:
        """The port on this machine; a free one unless given."""
        return DeploymentConfiguration("local", _requests(60_000, 16, 60_000), port or 0)

    @property
    def port(self) -> int | None:
        address = self.scoring_uri
        return int(address.rpartition(":")[2].partition("/")[0]) if address else None

    def reload(self, wait: bool = False) -> None:
        """Deploy the same again, with the current script and files, without losing a request."""
        if self._deployed is None:
            raise UserError(
                f"what was deployed as {self.name} is not known here: another object deployed it",
                "Give it to update(): models=[…] and inference_config=…, as to deploy().",
            )
        _send(self.workspace, _said(self.name, self._deployed))
        if wait:
            self.wait_for_deployment()
        self.update_deployment_state()


class AciWebservice(Webservice):
    """A service in a container in Azure; here one replica."""

    @staticmethod
    def deploy_configuration(**given: Any) -> DeploymentConfiguration:
        _tell_unused(given)
        return DeploymentConfiguration(
            "aci", {**_requests(60_000, 16, 60_000), **_gpus(given)}, 0, "key", _tags(given), given.get("description")
        )


class AksWebservice(Webservice):
    """A service on a cluster, whose number of replicas may follow the load."""

    @staticmethod
    def deploy_configuration(**given: Any) -> DeploymentConfiguration:
        _tell_unused(given)
        limits = _requests(
            given.get("scoring_timeout_ms") or 60_000,
            given.get("replica_max_concurrent_requests") or 1,
            given.get("max_request_wait_time") or 500,
        )
        values: dict[str, Json] = {**limits, **_gpus(given)}
        if given.get("num_replicas"):
            values["instance_count"] = given["num_replicas"]
        elif given.get("autoscale_enabled", True):
            values["scale_settings"] = {
                "type": "target_utilization",
                "min_instances": given.get("autoscale_min_replicas") or 1,
                "max_instances": given.get("autoscale_max_replicas") or 10,
                "target_utilization_percentage": given.get("autoscale_target_utilization") or 70,
                "polling_interval": given.get("autoscale_refresh_seconds") or 1,
            }
        mode = "aml_token" if given.get("token_auth_enabled") else "key"
        return DeploymentConfiguration("aks", values, 0, mode, _tags(given), given.get("description"))


def deploy(
    workspace: Connected,
    name: str,
    models: Sequence[Registered],
    inference_config: InferenceConfig | None = None,
    deployment_config: DeploymentConfiguration | None = None,
    deployment_target: Any = None,
    overwrite: bool = False,
) -> Webservice:
    """Create a service; with `overwrite` an existing one is replaced without losing a request."""
    config = deployment_config or LocalWebservice.deploy_configuration()
    # Errors are reported before anything is created.
    deployed = Deployed(models, inference_config, config, getattr(deployment_target, "name", None))
    said = _said(name, deployed)
    calls = Endpoints(workspace.client.calls)
    try:
        calls.show(name)
    except NotFound:
        calls.create(
            new_endpoint(
                name, auth_mode=config.auth_mode, port=config.port, tags=config.tags, description=config.description
            )
        )
    else:
        if not overwrite:
            raise Conflict(f"there is a service {name} already", "Pass overwrite=True, or choose another name.")
    _send(workspace, said)
    service = _KINDS[config.kind](workspace, name)
    service._deployed = deployed
    return service


_KINDS: Mapping[str, type[Webservice]] = {"local": LocalWebservice, "aci": AciWebservice, "aks": AksWebservice}


def _send(workspace: Connected, said: DeploymentFile) -> None:
    for text in said.notices:
        tell(text)
    send_deployment(workspace.client, said, Path.cwd(), all_traffic=True)


def _said(name: str, deployed: Deployed) -> DeploymentFile:
    models, inference, config = deployed.models, deployed.inference, deployed.config
    if len(models) > 1 and inference is None:
        raise JobError(
            f"the service {name} has {len(models)} models and no script", "Give inference_config=InferenceConfig(…)."
        )
    values: dict[str, Json] = {**config.values, **(inference.described() if inference is not None else {})}
    values |= {"name": _DEPLOYMENT, "endpoint_name": name, "compute": deployed.compute}
    if models:
        values["model"] = f"azureml:{models[0].name}:{models[0].version}"
    said = deployment_of(Path.cwd() / "Model.deploy", values)
    return replace(said, more_models=tuple(map(_input_of, models[1:])))


def _input_of(model: Registered) -> ModelInput:
    return ModelInput(f"models:/{model.name}/{model.version}", model.name, str(model.version), last_part(model.path))


def _deployment(view: EndpointView) -> DeploymentView | None:
    return next((item for item in view.deployments if item.name == _DEPLOYMENT), None)


def _requests(timeout_ms: int, concurrency: int, wait_ms: int) -> dict[str, Json]:
    keys = ("request_timeout_ms", "max_concurrent_requests_per_instance", "max_queue_wait_ms")
    return {"request_settings": dict(zip(keys, (timeout_ms, concurrency, wait_ms), strict=True))}


def _gpus(given: Mapping[str, Any]) -> dict[str, Json]:
    gpus = given.get("gpu_cores")
    return {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}


def _tags(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (given.get("tags") or {}).items()}


def _tell_unused(given: Mapping[str, Any]) -> None:
    if unused := [key for key in _WITHOUT_EFFECT if given.get(key)]:
        tell(f"{', '.join(unused)}: without effect here")
    if given.get("auth_enabled") is False:
        tell("auth_enabled=False: services are opened by keys (`get_keys()`); `run()` uses them by itself")
