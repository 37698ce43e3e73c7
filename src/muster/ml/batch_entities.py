"""Batch endpoints and deployments as v2 scripts make them, with the same keys as in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from muster.errors import JobError
from muster.job.endpoints.batch_deployment import BatchDeployment as DeploymentFile
from muster.job.endpoints.batch_deployment import batch_deployment_of
from muster.job.endpoints.batch_endpoint import BatchEndpointFile, batch_endpoint_of
from muster.ml.online_entities import Described
from muster.wire.serving.batch import BatchDeploymentView, BatchEndpointView


class BatchRetrySettings(Described):
    """How often a mini-batch is retried (`max_retries`), and how long one may take (`timeout`, in seconds)."""


class ModelBatchDeploymentSettings(Described):
    """How a model scores data."""


class _Defaults(Described):
    """`endpoint.defaults`: the deployment that requests go to."""

    deployment_name: str | None


class BatchEndpoint(Described):
    """A name that takes requests to score data."""

    name: str
    defaults: Any
    provisioning_state: str | None = None

    def __init__(self, *, name: str, defaults: Mapping[str, str] | None = None, **values: Any) -> None:
        given = _Defaults(**{"deployment_name": None, **(defaults or {})})
        super().__init__(name=name, defaults=given, **values)

    @classmethod
    def of(cls, view: BatchEndpointView) -> BatchEndpoint:
        """An existing endpoint; pass a changed one to `begin_create_or_update`."""
        defaults = {"deployment_name": view.default_deployment} if view.default_deployment else None
        made = cls(
            name=view.name, description=view.description, tags=dict(view.tags), properties=dict(view.properties),
            defaults=defaults,
        )  # fmt: skip
        made.provisioning_state = "Succeeded"
        return made

    def said(self) -> BatchEndpointFile:
        """The endpoint, checked as if from a file; raises JobError."""
        return batch_endpoint_of(self._where, self.described())


class BatchDeployment(Described):
    """A model that scores data."""

    name: str
    endpoint_name: str
    provisioning_state: str | None = None
    _script: str = ""
    """For a fetched deployment, its script on the server."""

    @classmethod
    def of(cls, view: BatchDeploymentView) -> BatchDeployment:
        """An existing deployment; its code is only on the server."""
        settings = view.settings
        model = view.model
        if model is not None and "/" not in model:
            model = f"azureml:{model}"
        made = cls(
            name=view.name, endpoint_name=view.endpoint, description=view.description, tags=dict(view.tags),
            model=model, compute=view.compute, resources={"instance_count": view.nodes},
            mini_batch_size=settings.mini_batch_size or None, max_concurrency_per_instance=view.procs,
            output_action=settings.output_action, output_file_name=settings.output_file,
            error_threshold=settings.error_threshold,
            retry_settings=BatchRetrySettings(max_retries=settings.max_retries, timeout=math.ceil(settings.timeout_s)),
        )  # fmt: skip
        made.provisioning_state = "Succeeded"
        made._script = settings.script
        return made

    def said(self) -> DeploymentFile:
        """The deployment, checked as if from a file; raises JobError. Paths are relative to the current folder."""
        described = self.described()
        if self._script and not described.get("code_configuration"):
            raise JobError(
                f"the code of {self.name} is only on the server",
                f"Give it code_configuration=CodeConfiguration(code=…, scoring_script={self._script!r}).",
            )
        return batch_deployment_of(self._where, described)


class ModelBatchDeployment(BatchDeployment):
    """The same in newer scripts, with `settings=ModelBatchDeploymentSettings(…)`."""
