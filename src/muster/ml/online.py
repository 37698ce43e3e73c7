"""`ml_client.online_endpoints` and `ml_client.online_deployments`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from muster.client.api import Client
from muster.client.endpoints.asking import invoke
from muster.client.endpoints.calls import Endpoints, new_endpoint
from muster.client.endpoints.deploying import deploy
from muster.client.endpoints.logs import last_lines
from muster.errors import NotFound, RunFailed, UserError
from muster.ml.online_entities import (
    EndpointAuthKeys,
    EndpointAuthToken,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
    keys_of,
)
from muster.ml.operations import Done, Operations
from muster.sdk.notices import tell
from muster.sdk.workspace import Workspace
from muster.wire.codec import Json
from muster.wire.serving.endpoints import (
    DeploymentView,
    EndpointChanges,
    EndpointView,
)

_LOOK_S = 0.2


class OnlineEndpoints(Operations):
    """`ml_client.online_endpoints`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def _calls(self) -> Endpoints:
        return Endpoints(self._workspace.client.calls)

    def begin_create_or_update(self, endpoint: ManagedOnlineEndpoint, **kwargs: Any) -> Done:
        """Create an endpoint, or change the traffic, tags and description of an existing one."""
        said, calls = endpoint.said(), self._calls
        for text in said.notices:
            tell(text)
        try:
            view = calls.show(said.name)
        except NotFound:
            view = calls.create(
                new_endpoint(
                    said.name, description=said.description, tags=said.tags, properties=said.properties,
                    auth_mode=said.auth_mode, compute=said.compute,
                )
            )  # fmt: skip
        given = vars(endpoint)
        changes = EndpointChanges(
            said.description,
            said.tags or None,
            said.traffic if "traffic" in given and view.deployments else None,
            said.mirror_traffic if "mirror_traffic" in given and view.deployments else None,
        )
        return Done(ManagedOnlineEndpoint.of(calls.change(said.name, changes)))

    def get(self, name: str, **kwargs: Any) -> ManagedOnlineEndpoint:
        """An endpoint's current state; pass a changed one to `begin_create_or_update`."""
        return ManagedOnlineEndpoint.of(self._calls.show(name))

    def list(self, **kwargs: Any) -> Iterator[ManagedOnlineEndpoint]:
        return map(ManagedOnlineEndpoint.of, self._calls.list())

    def begin_delete(self, name: str, **kwargs: Any) -> Done:
        """Delete an endpoint with all of its deployments."""
        self._calls.delete(name)
        return Done(None)

    def get_keys(self, name: str) -> EndpointAuthKeys | EndpointAuthToken:
        """The endpoint's keys, or a token for an hour."""
        return keys_of(self._calls.keys(name))

    def begin_regenerate_keys(self, name: str, *, key_type: str = "primary") -> Done:
        """Replace a key by a new one."""
        if key_type not in ("primary", "secondary"):
            raise UserError(f"there is no {key_type} key", "Keys are primary and secondary.")
        return Done(keys_of(self._calls.renew_key(name, "primary" if key_type == "primary" else "secondary")))

    def invoke(
        self,
        endpoint_name: str,
        *,
        request_file: str | Path | None = None,
        input_data: str | Mapping[str, Json] | None = None,
        deployment_name: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Send a request to an endpoint; returns the text of the answer. Raises UserError for a status of failure."""
        if (request_file is None) == (input_data is None):
            raise UserError("there must be one body", "Give either request_file or input_data.")
        if request_file is not None:
            body = Path(request_file).read_bytes()
        else:
            body = (input_data if isinstance(input_data, str) else json.dumps(input_data)).encode()
        answer = invoke(self._calls, endpoint_name, body, deployment_name)
        if answer.status >= 400:
            raise UserError(f"{endpoint_name} answered {answer.status}: {answer.text[:500]}")
        return answer.text


class OnlineDeployments(Operations):
    """`ml_client.online_deployments`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def _client(self) -> Client:
        return self._workspace.client

    def begin_create_or_update(
        self, deployment: ManagedOnlineDeployment, *, local: bool = False, **kwargs: Any
    ) -> Deploying:
        """Create a deployment, or replace it without losing a request; `result()` waits until it serves."""
        if local:
            tell("local=True: deployments run on this machine anyway unless `compute` names another")
        said = deployment.said()
        for text in said.notices:
            tell(text)
        deploy(self._client, said, Path.cwd())
        return Deploying(self, said.endpoint, said.name)

    def get(self, name: str, endpoint_name: str, **kwargs: Any) -> ManagedOnlineDeployment:
        """A deployment's current state; pass a changed one to `begin_create_or_update`."""
        return self._entity(self.view(name, endpoint_name))

    def list(self, endpoint_name: str, **kwargs: Any) -> Iterator[ManagedOnlineDeployment]:
        return map(self._entity, Endpoints(self._client.calls).show(endpoint_name).deployments)

    def view(self, name: str, endpoint_name: str) -> DeploymentView:
        """A deployment as the server describes it."""
        for item in Endpoints(self._client.calls).show(endpoint_name).deployments:
            if item.name == name:
                return item
        raise NotFound(f"the endpoint {endpoint_name} has no deployment {name!r}", "`list(endpoint_name)` lists them.")

    def _entity(self, view: DeploymentView) -> ManagedOnlineDeployment:
        return ManagedOnlineDeployment.of(view, self._client.run(view.run).spec if view.run else {})

    def begin_delete(self, name: str, endpoint_name: str, **kwargs: Any) -> Done:
        """Delete a deployment without traffic."""
        Endpoints(self._client.calls).delete_deployment(endpoint_name, name)
        return Done(None)

    def get_logs(self, name: str, endpoint_name: str, lines: int = 5000, **kwargs: Any) -> str:
        """The last lines that the replicas printed."""
        return last_lines(self._client, self.view(name, endpoint_name), lines)


class Deploying(Done):
    """A deployment that is starting."""

    def __init__(self, deployments: OnlineDeployments, endpoint: str, name: str) -> None:
        super().__init__(None)
        self._get: Callable[[], DeploymentView] = partial(deployments.view, name, endpoint)
        self._entity = partial(deployments.get, name, endpoint)
        self._show: Callable[[], EndpointView] = partial(Endpoints(deployments._client.calls).show, endpoint)

    def result(self, timeout: float | None = None) -> ManagedOnlineDeployment:
        """Wait until the deployment serves; raises RunFailed if it does not start."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            view = self._get()
            if view.has_come_up and self._show().state != "starting":
                return self._entity()
            if view.has_failed:
                raise RunFailed(f"the deployment {view.name} failed: {view.why or 'see its log'}")
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the deployment {view.name} is {view.state} after {timeout:g} s")
            time.sleep(_LOOK_S)

    def wait(self, timeout: float | None = None) -> None:
        self.result(timeout)

    def done(self) -> bool:
        return self._get().state not in ("starting", "updating")
