"""Submission of a job: everything that can be refused is refused here, before anything starts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, select

from muster import errors
from muster.clusters.options import parse_options
from muster.control.isolation import Circumstances, settle
from muster.control.scheduling.explain import impossible
from muster.control.scheduling.model import Gang, Need
from muster.control.scheduling.quota import Usage
from muster.environments.resolve import Resolved
from muster.host import clock
from muster.host.sandbox import machine
from muster.job.check import no_effect_notices
from muster.job.explain import make_spec
from muster.job.spec import JobSpec
from muster.launch.data_sources import data_sources
from muster.launch.layout import demand, num_ranks
from muster.launch.plan import check as check_plan
from muster.launch.plan import placeholder_slots, plan, sample_slots
from muster.server.context import Context
from muster.server.data import check as datacheck
from muster.server.data import holdings, mounts, output_assets
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import BY_KEY, CLUSTERS, add_event
from muster.server.environments import records
from muster.server.nodes import allocations, clusters
from muster.server.notifications import subscriptions
from muster.server.queue import dependencies
from muster.server.runs.attempt_record import Columns
from muster.server.runs.views import run_view, run_views
from muster.wire import states
from muster.wire.node.plan import PlanRequest, PlanView
from muster.wire.people import ADMIN
from muster.wire.runs import RunView, Submission
from muster.wire.stream import StateChanged

_ADD_RUN = insert(tables.runs)


def submit(context: Context, transaction: Transaction, submission: Submission) -> RunView:
    """Queue a job; returns its view."""
    return run_view(context, transaction.connection, accept(context, transaction, submission))


def submit_many(context: Context, transaction: Transaction, submissions: Sequence[Submission]) -> list[RunView]:
    """Queue many jobs, all or none; returns their views. A refusal says which job it is about."""
    ids = []
    for number, submission in enumerate(submissions, 1):
        try:
            ids.append(accept(context, transaction, submission))
        except errors.UserError as error:
            if len(submissions) > 1:
                title = submission.spec.get("display_name") or submission.spec.get("name")
                which = f"run {number} of {len(submissions)}" + (f" ({title})" if title else "")
                error.message = f"{which}: {error.message}"
            raise
    rows = {row.id: row for row in transaction.execute(select(tables.runs).where(tables.runs.c.id.in_(ids)))}
    return run_views(context, transaction.connection, [rows[run_id] for run_id in ids])


def accept(context: Context, transaction: Transaction, submission: Submission, holds_cpus: bool = True) -> str:
    """Queue a job; the same key again is the same run. Returns the run's id.

    A run that serves for months holds no CPUs, or nothing else would ever start on a small machine.
    """
    known = BY_KEY.first(transaction, submission.key)
    if known is not None:
        return str(known.id)
    context.disk.check()
    given = make_spec(dict(submission.spec))
    run_id = new_id(given)
    output_assets.check(transaction.connection, given)
    spec = _settled(context, transaction.connection, output_assets.placed(given, run_id), submission.submitted_by)
    check_plan(spec)
    cluster = find_cluster(transaction.connection, spec.compute)
    notices = [*submission.notices, *_check(context, transaction.connection, cluster, spec, submission)]
    settled = records.settle(context, transaction.connection, spec, submission.python, submission.packages)
    notices += settled.notices
    spec = spec.model_copy(update={"environment_variables": {**settled.variables, **spec.environment_variables}})
    # Arguments of the job's own could give the container the machine's folders.
    in_container = settled.container is not None and not spec.resources.container_args
    spec = _with_isolation(context, cluster.engine, spec, submission.submitted_by, in_container)
    now = clock.now()
    row = _row(run_id, spec, submission, settled, now)
    if not holds_cpus:
        row["ranks_per_node"] = 0
    transaction.execute(_ADD_RUN, {**row, "notices": list(dict.fromkeys(notices))})
    subscriptions.watch_job(context, transaction, run_id, spec.notify, submission.submitted_by)
    add_event(transaction, run_id, StateChanged(states.QUEUED, now))
    transaction.after_commit.append(lambda: context.hub.changed(runs=[run_id], queue=True))
    transaction.after_commit.append(lambda: context.runs.unrecorded.add(run_id))
    return run_id


def tried(context: Context, connection: Connection, submission: Submission) -> JobSpec:
    """The job with the versions of its data fixed, checked as `accept` does; nothing is queued."""
    spec = _settled(context, connection, make_spec(dict(submission.spec)), submission.submitted_by)
    _check(context, connection, find_cluster(connection, spec.compute), spec, submission)
    records.settle(context, connection, spec, submission.python, submission.packages)
    return spec


def _row(run_id: str, spec: JobSpec, submission: Submission, settled: Resolved, now: float) -> Columns:
    """The row of a queued run."""
    need = demand(spec)
    return {
        "id": run_id,
        "key": submission.key,
        "name": spec.name,
        "display_name": spec.display_name or spec.name,
        "experiment": spec.experiment_name,
        "status": states.QUEUED,
        "created_at": now,
        "queued_at": now,
        "spec": spec.model_dump(mode="json"),
        "snapshot": submission.snapshot,
        "python": settled.python or submission.python,
        "environment": records.record_of(settled),
        "submitted_by": submission.submitted_by,
        "compute": spec.compute,
        "priority": allocations.PRIORITIES[spec.queue_settings.priority],
        "num_nodes": spec.resources.instance_count,
        "num_ranks": num_ranks(spec),
        "ranks_per_node": need.ranks_per_node,
        "gpus_per_node": need.gpus_per_node,
        "gpu_share": need.gpu_share if need.gpu_share < 1 else None,
        "timeout_s": spec.limits.timeout,
        "preemptible": spec.queue_settings.preemptible,
        "attempt": 0,
        "tags": dict(spec.tags),
        "description": spec.description,
    }


def _settled(context: Context, connection: Connection, given: JobSpec, submitted_by: str | None) -> JobSpec:
    """The job with the versions of its data and the ids of the runs that it follows."""
    spec = datacheck.settle(context, connection, given, submitted_by)
    return spec.model_copy(update={"after": dependencies.settle(connection, spec.after)}) if spec.after else spec


def _check(context: Context, connection: Connection, row: Any, spec: JobSpec, submission: Submission) -> list[str]:
    """Refuse what this cluster cannot run; returns notices."""
    if row.state == clusters.DELETING:
        raise errors.Conflict(f"the cluster {row.name} is being deleted", "Choose another compute.")
    nodes = clusters.offered(context, clusters.cluster_of(row))
    need = demand(spec)
    shape = Need(need.num_nodes, need.ranks_per_node, need.gpus_per_node, need.gpu_share)
    user, snapshot = submission.submitted_by or "", submission.snapshot
    gang = Gang("", "", spec.compute, shape, user=user, experiment=spec.experiment_name)
    quotas = Usage(clusters.rules_of(context, row, {}, 0), len(nodes[0].gpus) if nodes else 0)
    queue = context.nodes.engines.queue(row.engine)
    unavailable = queue.trouble(clusters.cluster_of(row)) if queue is not None else ""
    mounts.check_inputs(context, connection, spec, row)
    if why := (impossible(gang, nodes) if not unavailable else None) or quotas.exceeded_by(gang):
        raise errors.JobError(f"the job can never start: it {why}", "Ask for less, or choose another compute.")
    if snapshot is not None and not context.files.snapshots.has(snapshot):
        raise errors.Conflict(f"the code snapshot {snapshot} is not here", "Upload it first.")
    # A job that its cluster's queue would never accept is refused now.
    allocations.preview(context, clusters.cluster_of(row), spec)
    return [*no_effect_notices(spec), *([f"{row.name}: {unavailable}"] if unavailable else [])]


def _with_isolation(context: Context, engine: str, spec: JobSpec, person: str | None, in_container: bool) -> JobSpec:
    """The job with its isolation settled; refused where it needs isolation and cannot have it."""
    people, engines = context.tokens.people, context.nodes.engines
    here = engines.on_this_machine(engine)
    is_admin = person is None or people.role(person) == ADMIN
    needs_look = here and (spec.isolation or context.isolation or (people.is_shared and not is_admin))
    trouble = machine.trouble() if needs_look else ""
    circumstances = Circumstances(
        spec.compute, people.is_shared, is_admin, in_container, here, trouble, engines.takes_orders_from_ranks(engine)
    )
    return spec.model_copy(update={"isolation": settle(spec.isolation, context.isolation, circumstances)})


def preview(context: Context, connection: Connection, request: PlanRequest) -> PlanView:
    """The plan of a job on this workspace's nodes, without running it."""
    spec = make_spec(dict(request.spec))
    cluster = clusters.cluster_of(find_cluster(connection, spec.compute))
    nodes, script = clusters.offered(context, cluster), allocations.preview(context, cluster, spec)
    check_plan(spec)
    placeholders = sample_slots if context.nodes.engines.on_this_machine(cluster.engine) else placeholder_slots
    slots = placeholders(spec, cpus=nodes[0].cpus, gpus=nodes[0].gpus) if nodes else placeholders(spec)
    made = plan(spec, slots, run_id="RUN", attempt=1, python=request.python or "python")
    notices = made.notices
    if placeholders is placeholder_slots:
        stand = "NODE_0, ADDRESS_OF_NODE_0 and ports stand for those of the nodes"
        notices = (f"{stand} that {cluster.name} gives the run when it starts", *notices)
    here = context.nodes.engines.on_this_machine(cluster.engine)
    shared = parse_options(cluster.options).shares_data(here)
    known = holdings.look(context, connection, spec, same_machine=here)
    if shared and here:
        # Such nodes have caches of their own.
        known = {name: replace(item, cached=False) for name, item in known.items()}
    return PlanView(made.nodes, notices, script=script, data=data_sources(spec, len(made.nodes), shared, known))


def find_cluster(connection: Connection, name: str) -> Any:
    """A compute target by name, or a refusal that names the known ones."""
    rows = {row.name: row for row in connection.execute(CLUSTERS)}
    if name not in rows:
        raise errors.JobError(
            f"there is no compute {name!r}",
            f"Known here: {', '.join(sorted(rows))}. `muster cluster create NAME` makes one.",
        )
    return rows[name]


def new_id(spec: JobSpec) -> str:
    """A readable, unique id: `resnet50-k3v9x2ab`."""
    stem = "".join(
        ch if ch.isalnum() or ch in "-_" else "-" for ch in (spec.display_name or spec.name or spec.experiment_name)
    )
    alphabet = "abcdefghijkmnpqrstuvwxyz23456789"
    tail = "".join(secrets.choice(alphabet) for _ in range(8))
    return f"{stem.strip('-_')[:40] or 'run'}-{tail}"
