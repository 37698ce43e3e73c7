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
    said: DeploymentFile,
    base: Path,
    *,
    all_traffic: bool = False,
    progress: Sent = lambda done, total: None,
) -> EndpointView:
    """Send a deployment's code, and have the server run it."""
    model = _registered(client, said)
    limits = limits_of(said, model)
    spec = make_spec(job_of(said, settings_of(said, limits, model), model))
    made = gathered(client, spec, base, notices=said.notices, progress=progress)
    new = NewDeployment(
        Submission(
            "deployment", made.spec.model_dump(mode="json"), made.snapshot, sys.executable, made.packages,
            notices=tuple(made.notices),
        ),
        limits,
        said.scaling.least,
        said.scaling.most,
        said.nodes,
        said.description,
        said.tags,
        all_traffic,
        None if model is None else f"{model.name}:{model.version}",
    )  # fmt: skip
    return Endpoints(client.calls).deploy(said.endpoint, said.name, new)


def limits_of(said: DeploymentFile, model: ModelView | None) -> RequestLimits:
    """How requests are taken; a model without a script of its own may run one twice. Pure."""
    if said.says_idempotent:
        return said.limits
    return replace(said.limits, idempotent=said.script is None and (model is None or model.type == "mlflow_model"))


def settings_of(said: DeploymentFile, limits: RequestLimits, model: ModelView | None) -> ServeSettings:
    """What the replicas are told. Pure."""
    scaling, probe = said.scaling, said.probe
    return ServeSettings(
        script="" if said.script is None else said.script.as_posix(),
        name=model.name if model is not None else said.name,
        version=str(model.version) if model is not None else "1",
        port=0,
        replicas=scaling.least // said.nodes,
        max_batch=said.max_batch,
        max_wait_ms=said.max_wait_ms,
        timeout_ms=float(limits.timeout_ms),
        max_queue=max(_WAIT_IN_REPLICA, limits.concurrency),
        endpoint=said.endpoint,
        deployment=said.name,
        max_replicas=scaling.most // said.nodes,
        target_percent=float(scaling.target_percent),
        polling_s=scaling.polling_s,
        idle_s=scaling.idle_s,
        probe_delay_s=probe.delay_s,
        probe_period_s=probe.period_s,
        probe_timeout_s=probe.timeout_s,
        probe_failures=probe.failures,
        collections=said.collecting.collections,
        sampling_rate=said.collecting.sampling_rate,
        rolling_rate=said.collecting.rolling_rate,
        captured_headers=said.collecting.headers,
    )


def job_of(said: DeploymentFile, settings: ServeSettings, model: ModelView | None) -> dict[str, Json]:
    """The job of a deployment's run, which does not end. Pure."""
    models = models_of(said, model)
    job: dict[str, Json] = {
        "display_name": f"{said.endpoint}-{said.name}",
        "experiment_name": "endpoints",
        "command": ("python", "-m", "muster.scoring.serve", json.dumps(settings_json(settings))),
        "inputs": inputs_of(models),
        "environment_variables": {**variables_of(models), **said.variables},
        "retry": _RETRY,
        "tags": {"endpoint": said.endpoint, "deployment": said.name},
        "resources": {"gpus_per_node": said.gpus or 0},
    }
    if said.code is not None:
        job["code"] = str(said.code)
    if said.environment is not None:
        job["environment"] = said.environment
    if said.compute is not None:
        job["compute"] = said.compute
    return job


def models_of(said: DeploymentFile, model: ModelView | None) -> list[ModelInput]:
    """The models of a deployment, the first of which `model` is where it is registered. Pure."""
    if said.model is None:
        return []
    first = ModelInput.at(said.model) if model is None else registered_input(model)
    return [first, *said.more_models]


def _registered(client: Client, said: DeploymentFile) -> ModelView | None:
    """The registered model that is meant now; None for files of a run or of this machine."""
    text = said.model
    if text is None or not is_address(text) or "://" in text:
        _check_has_script(said, None)
        return None
    reference = parse(text)
    if isinstance(reference, RunPath):
        return None
    model = Models(client.calls).details(str(reference)).model
    _check_has_script(said, model)
    return model


def _check_has_script(said: DeploymentFile, model: ModelView | None) -> None:
    if said.script is not None:
        return
    hint = "Add code_configuration: {code: ./src, scoring_script: score.py}."
    if said.model is None:
        raise JobError(f"the deployment {said.name} has neither a model nor a script", hint)
    kinds = {item.format for item in model.formats} if model is not None else set()
    if model is not None and model.type != "mlflow_model" and "TorchScript" not in kinds:
        raise JobError(f"{said.model} is neither an MLflow model nor a TorchScript file, and there is no script", hint)
