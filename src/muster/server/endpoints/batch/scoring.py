"""Accepts deployments of batch endpoints, and turns requests into runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from muster import errors
from muster.control.access import Caller
from muster.host import clock
from muster.job.endpoints.batch_job import command_of, job_of_request
from muster.job.explain import make_spec
from muster.job.parts import Input, PyTorch
from muster.job.spec import JobSpec
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.server.endpoints.batch import records
from muster.server.models.usage import models_of
from muster.server.runs import submission
from muster.wire.codec import Json, from_json, to_json
from muster.wire.runs import Submission
from muster.wire.serving.batch import BatchRequest, NewBatchDeployment
from muster.wire.serving.endpoints import check_endpoint_name


def deploy(
    context: Context, transaction: Transaction, endpoint: str, name: str, new: NewBatchDeployment, caller: Caller
) -> None:
    """Store a deployment with the current version of its model, unless none of its runs could start."""
    try:
        check_endpoint_name(name)
    except ValueError as error:
        raise errors.JobError(str(error), "Give the deployment another name.") from error
    row = records.owned(transaction.connection, endpoint, caller)
    known = records.deployments(transaction.connection, endpoint).get(name)
    job = replace(new.submission, key=f"batch/{endpoint}/{name}", submitted_by=caller.subject)
    spec = submission.tried(context, transaction.connection, job)
    if not isinstance(spec.distribution, PyTorch):
        raise errors.JobError(
            "the job of a batch deployment has no processes that score",
            "Deploy with `muster batch-endpoint deploy -f FILE`.",
        )
    document = {**spec.model_dump(mode="json"), "command": command_of(new.settings)}
    now = clock.now()
    kept = {
        "endpoint": endpoint, "name": name, "snapshot": job.snapshot, "model": _model(spec, document),
        "spec": to_json(replace(new, submission=replace(job, spec=document))),
        "revision": known.revision + 1 if known is not None else 1,
        "created_at": known.created_at if known is not None else now, "updated_at": now,
    }  # fmt: skip
    upsert(transaction, tables.batch_deployments, kept)
    is_default = new.set_default or row.default_deployment is None
    records.touch(transaction, endpoint, **({"default_deployment": name} if is_default else {}))


def job_of(connection: Connection, endpoint: str, request: BatchRequest, caller: Caller) -> Submission:
    """The job for a request, submitted as the person who asks."""
    row = records.find_deployment(connection, records.find(connection, endpoint), request.deployment)
    new = from_json(NewBatchDeployment, row.spec)
    spec = job_of_request(new.submission.spec, new.settings, request, endpoint, row.name)
    # Refused here, where the error can name the field of the request.
    make_spec(dict(spec))
    key = f"batch/{endpoint}/{request.key}"
    return replace(new.submission, key=key, spec=spec, submitted_by=caller.subject)


def _model(spec: JobSpec, document: Mapping[str, Json]) -> str | None:
    found = next(models_of(document), None)
    given = spec.inputs.get("model")
    return found or (given.path if isinstance(given, Input) else None)
