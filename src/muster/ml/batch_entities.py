"""Batch endpoints and deployments as v2 scripts make them: what a file could say too, under the same keys."""

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
    """How often a mini-batch is tried again (`max_retries`), and how long one may take (`timeout`, in seconds)."""


class ModelBatchDeploymentSettings(Described):
    """How a model is run over data."""


class _Defaults(Described):
    """`endpoint.defaults`: the deployment that requests go to."""

    deployment_name: str | None


class BatchEndpoint(Described):
    """A name that is asked to score data."""

    name: str
    defaults: Any
    provisioning_state: str | None = None

    def __init__(self, *, name: str, defaults: Mapping[str, str] | None = None, **values: Any) -> None:
        given = _Defaults(**{"deployment_name": None, **(defaults or {})})
        super().__init__(name=name, defaults=given, **values)

    @classmethod
    def of(cls, view: BatchEndpointView) -> BatchEndpoint:
        """An endpoint that is there: what is changed in it, `begin_create_or_update` takes."""
        defaults = {"deployment_name": view.default_deployment} if view.default_deployment else None
        made = cls(
            name=view.name, description=view.description, tags=dict(view.tags), properties=dict(view.properties),
            defaults=defaults,
        )  # fmt: skip
        made.provisioning_state = "Succeeded"
        return made

    def said(self) -> BatchEndpointFile:
        """Checked, as from a file; raises JobError."""
        return batch_endpoint_of(self._where, self.described())


class BatchDeployment(Described):
    """A model that is run over data."""

    name: str
    endpoint_name: str
    provisioning_state: str | None = None
    _script: str = ""
    """Of one that was fetched: the script that it has on the server."""

    @classmethod
    def of(cls, view: BatchDeploymentView) -> BatchDeployment:
        """A deployment that is there, as it is kept; its code is only on the server."""
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
        """Checked, as from a file; raises JobError. Paths are relative to the current folder."""
        described = self.described()
        if self._script and not described.get("code_configuration"):
            raise JobError(
                f"the code of {self.name} is only on the server",
                f"Give it code_configuration=CodeConfiguration(code=…, scoring_script={self._script!r}).",
            )
        return batch_deployment_of(self._where, described)


class ModelBatchDeployment(BatchDeployment):
    """The same in newer scripts, with `settings=ModelBatchDeploymentSettings(…)`."""
