"""`ml_client.batch_endpoints` and `ml_client.batch_deployments`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.client.endpoints import batch as calls
from muster.client.scoring import data_input
from muster.errors import NotFound, UserError
from muster.ml.batch_entities import BatchDeployment, BatchEndpoint
from muster.ml.jobs import Job
from muster.ml.operations import Done, Operations
from muster.ml.values import Input, Output
from muster.sdk.notices import tell
from muster.sdk.run import Run
from muster.sdk.workspace import Workspace
from muster.wire.codec import Json
from muster.wire.serving.batch import DEPLOYMENT_TAG, ENDPOINT_TAG, BatchDeploymentView, BatchEndpointChanges

_OVERRIDES: Mapping[str, str] = {
    "mini_batch_size": "mini_batch_size",
    "error_threshold": "error_threshold",
    "output_file_name": "output_file",
    "instance_count": "nodes",
    "compute.instance_count": "nodes",
    "resources.instance_count": "nodes",
    "max_concurrency_per_instance": "procs",
    "retry_settings.max_retries": "max_retries",
    "retry_settings.timeout": "timeout_s",
    "compute": "compute",
    "job_name": "display_name",
    "display_name": "display_name",
    "experiment_name": "experiment",
}
"""Keys of `params_override`, and their names in a request."""


class BatchEndpoints(Operations):
    """`ml_client.batch_endpoints`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def _calls(self) -> calls.BatchEndpoints:
        return calls.BatchEndpoints(self._workspace.client.calls)

    def begin_create_or_update(self, endpoint: BatchEndpoint, **kwargs: Any) -> Done:
        """Create a batch endpoint, or change the default deployment, tags and description of an existing one."""
        said = endpoint.said()
        try:
            view = self._calls.show(said.name)
        except NotFound:
            view = self._calls.create(
                calls.new_batch_endpoint(
                    said.name, description=said.description, tags=said.tags, properties=said.properties
                )
            )
        chosen = said.default_deployment
        if chosen is not None and not view.deployments:
            tell("defaults.deployment_name has no effect yet: the first deployment becomes the default")
            chosen = None
        changes = BatchEndpointChanges(said.description, {**said.tags} or None, chosen)
        return Done(BatchEndpoint.of(self._calls.change(said.name, changes)))

    def get(self, name: str, **kwargs: Any) -> BatchEndpoint:
        """A batch endpoint's current state; pass a changed one to `begin_create_or_update`."""
        return BatchEndpoint.of(self._calls.show(name))

    def list(self, **kwargs: Any) -> Iterator[BatchEndpoint]:
        return map(BatchEndpoint.of, self._calls.list())

    def begin_delete(self, name: str, **kwargs: Any) -> Done:
        """Delete a batch endpoint with its deployments; their runs stay."""
        self._calls.delete(name)
        return Done(None)

    def invoke(
        self,
        endpoint_name: str,
        *,
        deployment_name: str | None = None,
        input: Input | str | None = None,
        inputs: Mapping[str, Input] | None = None,
        outputs: Mapping[str, Output] | None = None,
        params_override: Sequence[Mapping[str, Json]] | None = None,
        experiment_name: str | None = None,
        **kwargs: Any,
    ) -> Job:
        """Score data with a deployment; returns the job at once, and `jobs.stream(job.name)` follows it."""
        given = [*(inputs or {}).values(), *([] if input is None else [input])]
        if len(given) != 1:
            raise UserError(f"{len(given)} inputs were given", "Give one: inputs={'data': Input(…)}, or input=….")
        path = given[0] if isinstance(given[0], str) else given[0].path
        if path is None:
            raise UserError("the input has no path", "Give Input(type=…, path=…).")
        if len(outputs or {}) > 1:
            raise UserError(f"{len(outputs or {})} outputs were given", "A deployment of a model has one.")
        place = next((output.path for output in (outputs or {}).values()), None)
        changes = _overrides(params_override or ())
        if experiment_name is not None:
            changes["experiment"] = experiment_name
        address, kind = data_input(self._workspace.client, path)
        request = calls.new_request(
            address, **{"data_type": kind, "deployment": deployment_name, "output": place, **changes}
        )
        view = self._calls.invoke(endpoint_name, request)
        tell(*view.notices)
        return Job(Run._of(self._workspace, view))

    def list_jobs(self, endpoint_name: str) -> Iterator[Job]:
        """The jobs of a batch endpoint, newest first."""
        self._calls.show(endpoint_name)
        return _jobs(self._workspace, f"{ENDPOINT_TAG}={endpoint_name}")


class BatchDeployments(Operations):
    """`ml_client.batch_deployments`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def begin_create_or_update(self, deployment: BatchDeployment, **kwargs: Any) -> Done:
        """Create a deployment, or replace it for future runs."""
        said = deployment.said()
        calls.deploy(self._workspace.client, said, Path.cwd())
        return Done(self.get(str(said.name), str(said.endpoint)))

    def get(self, name: str, endpoint_name: str) -> BatchDeployment:
        return BatchDeployment.of(self._view(name, endpoint_name))

    def list(self, endpoint_name: str) -> Iterator[BatchDeployment]:
        found = calls.BatchEndpoints(self._workspace.client.calls).show(endpoint_name)
        return map(BatchDeployment.of, found.deployments)

    def begin_delete(self, name: str, endpoint_name: str) -> Done:
        """Remove a deployment; its runs stay."""
        calls.BatchEndpoints(self._workspace.client.calls).delete_deployment(endpoint_name, name)
        return Done(None)

    def list_jobs(self, endpoint_name: str, *, name: str | None = None) -> Iterator[Job]:
        """The jobs of a deployment, newest first."""
        tags = [f"{ENDPOINT_TAG}={endpoint_name}", *([f"{DEPLOYMENT_TAG}={name}"] if name else [])]
        return _jobs(self._workspace, *tags)

    def _view(self, name: str, endpoint_name: str) -> BatchDeploymentView:
        for item in calls.BatchEndpoints(self._workspace.client.calls).show(endpoint_name).deployments:
            if item.name == name:
                return item
        raise NotFound(
            f"the batch endpoint {endpoint_name} has no deployment {name!r}", "`list(endpoint_name)` lists them."
        )


def _overrides(given: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The values of `params_override`, by the fields of a request."""
    found: dict[str, Json] = {}
    for item in given:
        for key, value in _flat(item):
            if key not in _OVERRIDES:
                raise UserError(f"params_override: there is no {key!r}", f"There are: {', '.join(_OVERRIDES)}.")
            found[_OVERRIDES[key]] = value
    return found


def _flat(values: Mapping[str, Json], below: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{below}{key}.")
        else:
            yield f"{below}{key}", value


def _jobs(workspace: Workspace, *tags: str) -> Iterator[Job]:
    return (Job(Run._of(workspace, view)) for view in workspace.client.each_run(tags=tags))
