"""Batch scoring as a job: a model, data, a script with `init()` and `run()`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from muster.errors import JobError
from muster.job.endpoints.models import ModelInput, inputs_of, variables_of
from muster.wire.codec import Json, to_json
from muster.wire.serving.batch import DEPLOYMENT_TAG, ENDPOINT_TAG, BatchRequest, BatchSettings

RESULT = "result"
"""The output with the results."""
DATA = "data"
"""The input to score."""
_MODULE = "muster.scoring.batch"
_OVERRIDES = ("output_file", "mini_batch_size", "error_threshold", "max_retries", "timeout_s")
"""Settings of the deployment that a request may change."""


@dataclass(frozen=True)
class BatchScoring:
    """One batch scoring to run."""

    data: str | None
    """None: each request of a batch endpoint names its own."""
    data_type: str = "uri_folder"
    model: ModelInput | None = None
    code: Path | None = None
    """The folder to upload; the settings name the script in it."""
    settings: BatchSettings = field(default_factory=BatchSettings)
    output: str | None = None
    """An address in a datastore; None: kept with the run."""
    retries: int = 3
    variables: Mapping[str, str] = field(default_factory=dict)


def job_of(scoring: BatchScoring) -> dict[str, Json]:
    """The job that scores."""
    inputs: dict[str, Json] = {}
    if scoring.data is not None:
        inputs[DATA] = {"type": scoring.data_type, "path": scoring.data}
    models = () if scoring.model is None else (scoring.model,)
    inputs |= inputs_of(models)
    output: dict[str, Json] = {} if scoring.output is None else {"path": scoring.output}
    script = scoring.settings.script
    code: Mapping[str, Json] = {} if scoring.code is None else {"code": str(scoring.code)}
    return {
        **code,
        "display_name": f"score-{PurePosixPath(script).stem}" if script else "score",
        "command": command_of(scoring.settings),
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "inputs": inputs,
        "environment_variables": {**variables_of(models), **scoring.variables},
        "outputs": {RESULT: output},
        # A rank that is killed costs an attempt, and the next one resumes after the finished mini-batches.
        "retry": {"user_error": scoring.retries, "on_codes": ["signal", "host_oom"]},
    }


def command_of(settings: BatchSettings) -> list[Json]:
    """The command of every rank; the settings are passed as one argument."""
    return ["python", "-m", _MODULE, json.dumps(to_json(settings))]


def job_of_request(
    spec: Mapping[str, Json], settings: BatchSettings, request: BatchRequest, endpoint: str, deployment: str
) -> dict[str, Json]:
    """The job for one request to a batch endpoint: that of its deployment, with the request's data and changes."""
    chosen = {name: value for name in _OVERRIDES if (value := getattr(request, name)) is not None}
    try:
        changed = replace(settings, **chosen)
    except ValueError as error:
        raise JobError(str(error), "Correct the request.") from error
    output = _part(_part(spec, "outputs"), RESULT)
    tags = {**_part(spec, "tags"), **request.tags, ENDPOINT_TAG: endpoint, DEPLOYMENT_TAG: deployment}
    job: dict[str, Json] = {
        **spec,
        "display_name": request.display_name or f"{endpoint}-{deployment}",
        "experiment_name": request.experiment or endpoint,
        "command": command_of(changed),
        "inputs": {**_part(spec, "inputs"), DATA: {"type": request.data_type, "path": request.data}},
        "outputs": {RESULT: output if request.output is None else {**output, "path": request.output}},
        "tags": tags,
    }
    if request.nodes is not None:
        job["resources"] = {**_part(spec, "resources"), "instance_count": request.nodes}
    if request.procs is not None:
        job["distribution"] = {"type": "pytorch", "process_count_per_instance": request.procs}
    if request.compute is not None:
        job["compute"] = request.compute
    return job


def _part(values: Mapping[str, Json], key: str) -> dict[str, Json]:
    found = values.get(key)
    return dict(found) if isinstance(found, Mapping) else {}
