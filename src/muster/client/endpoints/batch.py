"""Batch endpoints: calls about them, and from a deployment's file to the server."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from pathlib import Path

from muster.client.api import Client
from muster.client.calls import LONG_S, Group, checking, segment
from muster.client.scoring import model_input
from muster.client.snapshot import Sent
from muster.client.submit import gathered
from muster.errors import JobError
from muster.job.endpoints.batch_deployment import BatchDeployment
from muster.job.endpoints.batch_job import BatchScoring, job_of
from muster.job.endpoints.models import ModelInput
from muster.job.explain import make_spec
from muster.wire.codec import Json
from muster.wire.runs import RunView, Submission
from muster.wire.serving.batch import (
    BatchEndpointChanges,
    BatchEndpointView,
    BatchRequest,
    NewBatchDeployment,
    NewBatchEndpoint,
)


class BatchEndpoints(Group):
    """What a client does with batch endpoints."""

    def list(self) -> list[BatchEndpointView]:
        return list(self.calls.each(BatchEndpointView, "/batch-endpoints"))

    def create(self, endpoint: NewBatchEndpoint) -> BatchEndpointView:
        return self.calls.read(BatchEndpointView, "POST", "/batch-endpoints", message=endpoint, again=False)

    def show(self, name: str) -> BatchEndpointView:
        return self.calls.read(BatchEndpointView, "GET", _path(name))

    def change(self, name: str, changes: BatchEndpointChanges) -> BatchEndpointView:
        """Change a batch endpoint's default deployment, description and tags."""
        return self.calls.read(BatchEndpointView, "PATCH", _path(name), message=changes)

    def delete(self, name: str) -> None:
        """Delete a batch endpoint with its deployments; its runs stay."""
        self.calls.send("DELETE", _path(name))

    def deploy(self, name: str, deployment: str, new: NewBatchDeployment) -> BatchEndpointView:
        """Create a deployment, or replace it for future runs."""
        path = f"{_path(name)}/deployments/{segment(deployment, 'deployment')}"
        return self.calls.read(BatchEndpointView, "PUT", path, message=new, again=False, timeout_s=LONG_S)

    def delete_deployment(self, name: str, deployment: str) -> None:
        """Delete a deployment; its runs stay."""
        self.calls.send("DELETE", f"{_path(name)}/deployments/{segment(deployment, 'deployment')}")

    def invoke(self, name: str, request: BatchRequest) -> RunView:
        """Score data; returns the run that does it."""
        return self.calls.read(RunView, "POST", f"{_path(name)}/invoke", message=request, timeout_s=LONG_S)


def new_batch_endpoint(name: str, **fields: object) -> NewBatchEndpoint:
    """A batch endpoint to be created, checked."""
    with checking():
        return NewBatchEndpoint(name, **fields)  # type: ignore[arg-type]


def new_request(data: str, **fields: object) -> BatchRequest:
    """A request to a batch endpoint, checked; sent twice, it makes one run."""
    with checking():
        return BatchRequest(uuid.uuid4().hex, data, **fields)  # type: ignore[arg-type]


def deploy(
    client: Client,
    deployment: BatchDeployment,
    base: Path,
    *,
    set_default: bool = False,
    progress: Sent = lambda done, total: None,
) -> BatchEndpointView:
    """Upload a deployment's code, and create the deployment."""
    name, endpoint = deployment.name, deployment.endpoint
    if name is None or endpoint is None:
        key = "name" if name is None else "endpoint_name"
        raise JobError(f"`{key}` is missing", f"Write {key}: … in the file, or give it as an option.")
    if deployment.model is None and not deployment.settings.script:
        hint = "Add model: azureml:NAME:VERSION, or code_configuration: {code: ./src, scoring_script: score.py}."
        raise JobError(f"the deployment {name} has neither a model nor a script", hint)
    source = (
        None if deployment.model is None else model_input(client, deployment.model, bool(deployment.settings.script))
    )
    spec = make_spec(deployment_job(deployment, source))
    made = gathered(client, spec, base, progress=progress)
    job = Submission(
        "deployment", made.spec.model_dump(mode="json"), made.snapshot, sys.executable, made.packages,
        notices=tuple(made.notices),
    )  # fmt: skip
    new = NewBatchDeployment(job, deployment.settings, deployment.description, deployment.tags, set_default)
    return BatchEndpoints(client.calls).deploy(endpoint, name, new)


def deployment_job(deployment: BatchDeployment, model: ModelInput | None) -> dict[str, Json]:
    """The job of a deployment's runs, without their data. Pure."""
    job = job_of(
        BatchScoring(
            None, model=model, code=deployment.code, settings=deployment.settings, variables=deployment.variables
        )
    )
    job |= {
        "distribution": {"type": "pytorch", "process_count_per_instance": deployment.procs},
        "resources": {"instance_count": deployment.nodes},
    }
    if deployment.environment is not None:
        job["environment"] = deployment.environment
    if deployment.compute is not None:
        job["compute"] = deployment.compute
    return job


def named(deployment: BatchDeployment, endpoint: str | None, name: str | None, compute: str | None) -> BatchDeployment:
    """A deployment's file, overridden by options."""
    return replace(
        deployment,
        endpoint=endpoint or deployment.endpoint,
        name=name or deployment.name,
        compute=compute or deployment.compute,
    )


def _path(name: str) -> str:
    return f"/batch-endpoints/{segment(name, 'endpoint')}"
