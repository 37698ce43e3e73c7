"""From a deployment's file to the job of its runs, and to the server."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from muster.client.api import Client
from muster.client.endpoints.calls import Endpoints
from muster.client.models import Models, registered_input
from muster.client.serving import ServeSettings, settings_json
from muster.client.snapshot import Sent
from muster.client.submit import gathered
from muster.errors import JobError
from muster.job.endpoints.deployment import DeploymentFile
from muster.job.endpoints.models import ModelInput, inputs_of, variables_of
from muster.job.explain import make_spec
from muster.job.rules import is_address
from muster.models.references import RunPath, parse
from muster.wire.codec import Json
from muster.wire.models import ModelView
from muster.wire.runs import Submission
from muster.wire.serving.endpoints import EndpointView, NewDeployment, RequestLimits

_RETRY: Json = {"user_error": 100, "on_codes": ["signal", "host_oom"], "backoff_s": 0.5}
_WAIT_IN_REPLICA = 256


def deploy(
    client: Client,
    deployment: DeploymentFile,
    base: Path,
    *,
    all_traffic: bool = False,
    progress: Sent = lambda done, total: None,
) -> EndpointView:
    """Upload a deployment's code, and have the server run it."""
    model = _registered(client, deployment)
    limits = limits_of(deployment, model)
    spec = make_spec(job_of(deployment, settings_of(deployment, limits, model), model))
    made = gathered(client, spec, base, notices=deployment.notices, progress=progress)
    new = NewDeployment(
        Submission(
            "deployment", made.spec.model_dump(mode="json"), made.snapshot, sys.executable, made.packages,
            notices=tuple(made.notices),
        ),
        limits,
        deployment.scaling.least,
        deployment.scaling.most,
        deployment.nodes,
        deployment.description,
        deployment.tags,
        all_traffic,
        None if model is None else f"{model.name}:{model.version}",
    )  # fmt: skip
    return Endpoints(client.calls).deploy(deployment.endpoint, deployment.name, new)


def limits_of(deployment: DeploymentFile, model: ModelView | None) -> RequestLimits:
    """The request limits; a model without its own script may run a request twice. Pure."""
    if deployment.says_idempotent:
        return deployment.limits
    return replace(
        deployment.limits, idempotent=deployment.script is None and (model is None or model.type == "mlflow_model")
    )


def settings_of(deployment: DeploymentFile, limits: RequestLimits, model: ModelView | None) -> ServeSettings:
    """The settings of the replicas. Pure."""
    scaling, probe = deployment.scaling, deployment.probe
    return ServeSettings(
        script="" if deployment.script is None else deployment.script.as_posix(),
        name=model.name if model is not None else deployment.name,
        version=str(model.version) if model is not None else "1",
        port=0,
        replicas=scaling.least // deployment.nodes,
        max_batch=deployment.max_batch,
        max_wait_ms=deployment.max_wait_ms,
        timeout_ms=float(limits.timeout_ms),
        max_queue=max(_WAIT_IN_REPLICA, limits.concurrency),
        endpoint=deployment.endpoint,
        deployment=deployment.name,
        max_replicas=scaling.most // deployment.nodes,
        target_percent=float(scaling.target_percent),
        polling_s=scaling.polling_s,
        idle_s=scaling.idle_s,
        probe_delay_s=probe.delay_s,
        probe_period_s=probe.period_s,
        probe_timeout_s=probe.timeout_s,
        probe_failures=probe.failures,
        collections=deployment.collecting.collections,
        sampling_rate=deployment.collecting.sampling_rate,
        rolling_rate=deployment.collecting.rolling_rate,
        captured_headers=deployment.collecting.headers,
    )


def job_of(deployment: DeploymentFile, settings: ServeSettings, model: ModelView | None) -> dict[str, Json]:
    """The job of a deployment's run, which does not end. Pure."""
    models = models_of(deployment, model)
    job: dict[str, Json] = {
        "display_name": f"{deployment.endpoint}-{deployment.name}",
        "experiment_name": "endpoints",
        "command": ("python", "-m", "muster.scoring.serve", json.dumps(settings_json(settings))),
        "inputs": inputs_of(models),
        "environment_variables": {**variables_of(models), **deployment.variables},
        "retry": _RETRY,
        "tags": {"endpoint": deployment.endpoint, "deployment": deployment.name},
        "resources": {"gpus_per_node": deployment.gpus or 0},
    }
    if deployment.code is not None:
        job["code"] = str(deployment.code)
    if deployment.environment is not None:
        job["environment"] = deployment.environment
    if deployment.compute is not None:
        job["compute"] = deployment.compute
    return job


def models_of(deployment: DeploymentFile, model: ModelView | None) -> list[ModelInput]:
    """The models of a deployment, the first of which `model` is where it is registered. Pure."""
    if deployment.model is None:
        return []
    first = ModelInput.at(deployment.model) if model is None else registered_input(model)
    return [first, *deployment.more_models]


def _registered(client: Client, deployment: DeploymentFile) -> ModelView | None:
    """The registered model that the reference means now; None for files of a run or of this machine."""
    text = deployment.model
    if text is None or not is_address(text) or "://" in text:
        _check_has_script(deployment, None)
        return None
    reference = parse(text)
    if isinstance(reference, RunPath):
        return None
    model = Models(client.calls).details(str(reference)).model
    _check_has_script(deployment, model)
    return model


def _check_has_script(deployment: DeploymentFile, model: ModelView | None) -> None:
    if deployment.script is not None:
        return
    hint = "Add code_configuration: {code: ./src, scoring_script: score.py}."
    if deployment.model is None:
        raise JobError(f"the deployment {deployment.name} has neither a model nor a script", hint)
    kinds = {item.format for item in model.formats} if model is not None else set()
    if model is not None and model.type != "mlflow_model" and "TorchScript" not in kinds:
        raise JobError(
            f"{deployment.model} is neither an MLflow model nor a TorchScript file, and there is no script", hint
        )
