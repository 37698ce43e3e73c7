"""Deployments: creates their runs, and moves them on as they start, take over and are replaced."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from muster import errors
from muster.control import endpoints as control
from muster.control.access import Caller
from muster.control.endpoints import Member, Wanted, next_steps
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run, upsert
from muster.server.endpoints import records
from muster.server.nodes import clusters
from muster.server.runs import changes, retries, submission
from muster.wire import states
from muster.wire.codec import Json, from_json, to_json
from muster.wire.runs import Submission
from muster.wire.serving.endpoints import NewDeployment, check_endpoint_name

EXPERIMENT = "endpoints"
DRAIN_MOST_S = 90.0
"""After this a run that was replaced is ended, even if requests still wait for it."""
_DOOR_RETRY: Json = {"user_error": 100, "on_codes": ["signal", "host_oom"], "backoff_s": 0.2}


def deploy(
    context: Context, transaction: Transaction, endpoint: str, name: str, new: NewDeployment, caller: Caller
) -> None:
    """Create a deployment, or replace it: the run of the new one takes over once it answers."""
    try:
        check_endpoint_name(name)
    except ValueError as error:
        raise errors.JobError(str(error), "Give the deployment another name.") from error
    row = records.owned(transaction.connection, endpoint, caller)
    known = records.deployments(transaction.connection, endpoint).get(name)
    revision, now = _next_revision(transaction, endpoint, name, known), clock.now()
    job = replace(new.submission, key=f"endpoint/{endpoint}/{name}/{uuid.uuid4().hex}", submitted_by=caller.subject)
    _check_nodes(context, transaction, job, new.nodes)
    runs = [_part(context, transaction, job, endpoint, name, revision, number) for number in range(new.nodes)]
    spec = to_json(replace(new, submission=replace(job, spec={})))
    kept = {
        "endpoint": endpoint, "name": name, "spec": spec, "revision": revision,
        "model": _model(transaction, runs[0], new),
        "created_at": known.created_at if known is not None else now, "updated_at": now,
    }  # fmt: skip
    upsert(transaction, tables.deployments, kept)
    columns: dict[str, Json] = {}
    if new.all_traffic:
        columns = {"traffic": {name: 100}, "mirror": {key: value for key, value in row.mirror.items() if key != name}}
        columns["canary"] = None
    _drop_unstarted(context, transaction, endpoint, name, revision, caller.subject)
    _ensure_door(context, transaction, row, job)
    records.touch(context, transaction, endpoint, **columns)


def _part(
    context: Context, transaction: Transaction, job: Submission, endpoint: str, name: str, revision: int, number: int
) -> str:
    """The run of one node of a deployment."""
    part = replace(job, key=f"{job.key}/{number}")
    run = submission.accept(context, transaction, part, holds_cpus=False)
    _add_run(transaction, run, endpoint, name, revision)
    return run


def _check_nodes(context: Context, transaction: Transaction, job: Submission, nodes: int) -> None:
    """Refuse more nodes than the cluster can have."""
    cluster = submission.find_cluster(transaction.connection, find_cluster_name(job) or "local")
    most = len(clusters.offered(context, clusters.cluster_of(cluster)))
    if nodes > max(1, most):
        raise errors.JobError(
            f"the deployment asks for {nodes} nodes; {cluster.name} has {most} at the most",
            f"Ask for fewer (nodes), or have another cluster: `muster cluster create NAME --max-nodes {nodes}`.",
        )


def advance(context: Context, transaction: Transaction, endpoint: str) -> bool:
    """Carry out the next steps for an endpoint's runs; returns whether there were any."""
    row = records.find(transaction.connection, endpoint)
    runs = records.open_runs(transaction.connection, endpoint)
    known = records.deployments(transaction.connection, endpoint)
    wanted = {
        name: Wanted(item.revision, from_json(NewDeployment, item.spec).instances) for name, item in known.items()
    }
    steps = next_steps(members(context, row, runs), wanted)
    by_run = {run.run_id: run for run in runs}
    for step in steps:
        if step.act == "serve":
            _set_state(transaction, step.run, control.SERVING)
        elif step.act == "drain":
            _set_state(transaction, step.run, control.DRAINING)
        elif step.act == "cancel":
            changes.cancel(context, transaction, [step.run], False, "its endpoint")
        elif step.act == "forget":
            _set_state(transaction, step.run, control.ENDED)
        elif step.act == "lose":
            gone = [{**replica, "ready": False, "gone": True} for replica in by_run[step.run].replicas]
            records.set_run(transaction, step.run, replicas=gone)
        elif step.act == "again":
            _set_state(transaction, step.run, control.STARTING)
            retries.by_hand(context, transaction, step.run, "its endpoint")
        else:
            _replace_door(context, transaction, row, by_run[step.run])
    if any(step.act != "cancel" for step in steps):
        records.touch(context, transaction, endpoint)
    return bool(steps)


def members(context: Context, row: Row[Any], runs: Sequence[Row[Any]]) -> list[Member]:
    """An endpoint's runs as input of decisions."""
    now = clock.now()
    doors = [run for run in runs if run.deployment is None and run.status not in states.TERMINAL]
    told = context.endpoints.of(doors[-1].run_id) if doors else None
    return [
        Member(
            run.run_id,
            run.deployment,
            run.revision,
            run.state,
            run.status if run.status != states.CANCEL_REQUESTED or run.state != control.DRAINING else states.CANCELED,
            sum(bool(replica["ready"]) for replica in run.replicas),
            _is_unused(row, run, told.seen if told else None, told.open if told else {}, now, bool(doors)),
            now - run.since,
            records.is_lost(run),
        )
        for run in runs
    ]


def _is_unused(row: Row[Any], run: Row[Any], seen: int | None, open_on: Any, now: float, has_door: bool) -> bool:
    if not has_door or now - run.since > DRAIN_MOST_S:
        return True
    addresses = {f"http://{run.address}:{replica['port']}" for replica in run.replicas}
    return seen == row.version and not any(open_on.get(address) for address in addresses)


def _next_revision(transaction: Transaction, endpoint: str, name: str, known: Row[Any] | None) -> int:
    table = tables.endpoint_runs
    mine = table.c.endpoint == endpoint, table.c.deployment == name
    last = transaction.execute(select(func.max(table.c.revision)).where(*mine)).scalar()
    return max(last or 0, known.revision if known is not None else 0) + 1


def _model(transaction: Transaction, run: str, new: NewDeployment) -> str | None:
    """NAME:VERSION of the model, with the version that was fixed when its run was accepted."""
    found = find_run(transaction.connection, run).spec["inputs"].get("model")
    path = str(found.get("path", "")) if isinstance(found, dict) else ""
    name, _, version = path.removeprefix("models:/").partition("/")
    return f"{name}:{version}" if path.startswith("models:/") and version.isdecimal() else new.model


def _add_run(transaction: Transaction, run: str, endpoint: str, deployment: str | None, revision: int) -> None:
    row: dict[str, Json] = {
        "run_id": run, "endpoint": endpoint, "deployment": deployment, "revision": revision, "attempt": 0,
        "state": control.STARTING, "address": None, "replicas": [], "since": clock.now(),
    }  # fmt: skip
    transaction.execute(insert(tables.endpoint_runs), row)


def _drop_unstarted(
    context: Context, transaction: Transaction, endpoint: str, name: str, revision: int, who: str
) -> None:
    """Cancel revisions that never served: they are of no use once there is a newer one."""
    for run in records.open_runs(transaction.connection, endpoint):
        if run.deployment == name and run.revision < revision and run.state == control.STARTING:
            _set_state(transaction, run.run_id, control.ENDED)
            changes.cancel(context, transaction, [run.run_id], False, who)


def _ensure_door(context: Context, transaction: Transaction, row: Row[Any], job: Submission) -> None:
    if any(run.deployment is None for run in records.open_runs(transaction.connection, row.name)):
        return
    compute = row.compute or find_cluster_name(job)
    spec: dict[str, Json] = {
        "display_name": f"endpoint-{row.name}",
        "experiment_name": EXPERIMENT,
        "command": ["python", "-m", "muster.scoring.door"],
        "retry": _DOOR_RETRY,
        "tags": {"endpoint": row.name},
        "resources": {"gpus_per_node": 0},
        **({"compute": compute} if compute else {}),
    }
    door = Submission(f"endpoint/{row.name}/{uuid.uuid4().hex}", spec, None, job.python, None, job.submitted_by)
    run = submission.accept(context, transaction, door, holds_cpus=False)
    _add_run(transaction, run, row.name, None, 0)


def find_cluster_name(job: Submission) -> str | None:
    """The cluster that a job's document names."""
    found = job.spec.get("compute")
    return found if isinstance(found, str) else None


def _replace_door(context: Context, transaction: Transaction, row: Row[Any], old: Row[Any]) -> None:
    """Start another front door if one ended by itself. One that a person cancelled stays away until a deployment."""
    _set_state(transaction, old.run_id, control.ENDED)
    if old.status != states.CANCELED:
        run = find_run(transaction.connection, old.run_id)
        job = Submission("door", {"compute": run.compute}, None, run.python, None, run.submitted_by)
        _ensure_door(context, transaction, row, job)


def _set_state(transaction: Transaction, run: str, state: str) -> None:
    table = tables.endpoint_runs
    transaction.execute(update(table).where(table.c.run_id == run).values(state=state, since=clock.now()))
