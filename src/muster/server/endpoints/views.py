"""Endpoints as clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, select

from muster.control import endpoints as control
from muster.server.context import Context
from muster.server.database import tables
from muster.server.endpoints import keys, records
from muster.server.models.usage import models_of
from muster.wire import states
from muster.wire.codec import from_json
from muster.wire.serving.canary import CanaryView
from muster.wire.serving.endpoints import DeploymentState, DeploymentView, EndpointView, NewDeployment, ServingFigures

ANYWHERE = "0.0.0.0"


def listing(context: Context, connection: Connection) -> list[EndpointView]:
    """All endpoints, by name."""
    rows = connection.execute(select(tables.endpoints).order_by(tables.endpoints.c.name)).all()
    return [view(context, connection, row) for row in rows]


def view(context: Context, connection: Connection, row: Row[Any]) -> EndpointView:
    """One endpoint with its deployments and what they do."""
    runs = records.open_runs(connection, row.name)
    door = next((run for run in reversed(runs) if run.deployment is None), None)
    deployments = tuple(
        _deployment(context, connection, row, item, [run for run in runs if run.deployment == name], door)
        for name, item in records.deployments(connection, row.name).items()
    )
    kept = keys.opened(context, row)
    base = address(row, door, "https" if kept.authority else "http")
    is_up = base is not None and door is not None and door.status == states.RUNNING
    return EndpointView(
        name=row.name,
        auth_mode=row.auth_mode,
        scoring_uri=f"{base}/score" if base else None,
        openapi_uri=f"{base}/swagger.json" if base else None,
        state=_endpoint_state(deployments, is_up),
        traffic=row.traffic,
        mirror_traffic=row.mirror,
        deployments=deployments,
        run=door.run_id if door is not None else None,
        description=row.description,
        tags=row.tags,
        properties=row.properties,
        compute=row.compute,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        canary=from_json(CanaryView, row.canary) if row.canary else None,
        certificate=kept.authority or None,
    )


def address(row: Row[Any], door: Row[Any] | None, scheme: str) -> str | None:
    """The address of the front door; None while it is not known."""
    if door is None or not row.port or not door.address:
        return None
    host = door.address if row.host in (None, ANYWHERE) else row.host
    return f"{scheme}://{host}:{row.port}"


def _endpoint_state(deployments: Sequence[DeploymentView], is_up: bool) -> str:
    if not deployments:
        return "empty"
    if not is_up:
        return "starting"
    missed = [item for item in deployments if item.traffic and not item.ready and not _may_sleep(item)]
    return "unavailable" if missed else "ready"


def _may_sleep(item: DeploymentView) -> bool:
    """Whether a deployment may be without a replica until the next request starts one."""
    return item.instances == 0 and item.state == "serving"


def _deployment(
    context: Context,
    connection: Connection,
    endpoint: Row[Any],
    row: Row[Any],
    runs: Sequence[Row[Any]],
    door: Row[Any] | None,
) -> DeploymentView:
    spec = from_json(NewDeployment, row.spec)
    newest = _first([run for run in runs if run.revision == row.revision])
    serving = _first([run for run in reversed(runs) if run.state == control.SERVING])
    shown = serving or newest
    parts = [run for run in runs if shown is not None and run.revision == shown.revision]
    over = (run.verdict for run in (newest, *parts) if run is not None and run.status in states.TERMINAL)
    verdict = next((item for item in over if item), None)
    older = shown is not None and shown.revision != row.revision
    ready = sum(replica["ready"] for run in parts if run.status not in states.TERMINAL for replica in run.replicas)
    own = (context.endpoints.figures(run.run_id).get(row.name) for run in parts)
    return DeploymentView(
        name=row.name,
        endpoint=row.endpoint,
        state="updating" if _is_taking_over(context, endpoint, runs, newest, door) else _state(newest, serving),
        traffic=endpoint.traffic.get(row.name, 0),
        mirror=endpoint.mirror.get(row.name, 0),
        revision=row.revision,
        run=shown.run_id if shown is not None else None,
        model=_model_of(connection, shown.run_id) if shown is not None and older else row.model,
        instances=spec.instances,
        max_instances=spec.max_instances,
        ready=ready,
        limits=spec.limits,
        description=spec.description,
        tags=spec.tags,
        why=verdict["message"] if verdict else None,
        serving_revision=serving.revision if serving is not None and serving.status not in states.TERMINAL else None,
        newest_run=newest.run_id if newest is not None else None,
        nodes=spec.nodes,
        runs=tuple(run.run_id for run in parts),
        created_at=row.created_at,
        updated_at=row.updated_at,
        requests=context.endpoints.figures(door.run_id if door is not None else None).get(row.name),
        replicas=_together([item for item in own if item is not None]),
    )


def _is_taking_over(
    context: Context, endpoint: Row[Any], runs: Sequence[Row[Any]], newest: Row[Any] | None, door: Row[Any] | None
) -> bool:
    """Whether the newest revision answers while older ones may still get requests."""
    if newest is None or newest.state != control.SERVING or newest.status in states.TERMINAL:
        return False
    older = {run.state for run in runs if run.revision < newest.revision and run.status not in states.TERMINAL}
    report = context.endpoints.of(door.run_id) if door is not None else None
    is_door_behind = report is not None and report.seen < endpoint.version
    return control.SERVING in older or (control.DRAINING in older and is_door_behind)


def _first(parts: Sequence[Row[Any]]) -> Row[Any] | None:
    """The run that shows a revision's state: one that serves, else one that failed, else any."""

    def rank(run: Row[Any]) -> int:
        is_over = run.status in states.TERMINAL
        return 0 if run.state == control.SERVING and not is_over else 1 if is_over else 2

    return min(parts, key=rank, default=None)


def _together(figures: Sequence[ServingFigures]) -> ServingFigures | None:
    """The figures of a deployment's parts as one: counts are added, times are those of the slowest."""
    if len(figures) < 2:
        return figures[0] if figures else None
    slowest = max(figures, key=lambda item: item.p95_ms)
    requests = sum(item.requests for item in figures)
    return replace(
        slowest,
        requests=requests,
        failed=sum(item.failed for item in figures),
        rate=sum(item.rate for item in figures),
        batch_mean=sum(item.batch_mean * item.requests for item in figures) / max(1, requests),
        busy=sum(item.busy for item in figures) / len(figures),
        restarts=sum(item.restarts for item in figures),
    )


def _model_of(connection: Connection, run: str) -> str | None:
    """The model that a run serves, as it was fixed when the run was accepted."""
    spec = connection.execute(select(tables.runs.c.spec).where(tables.runs.c.id == run)).scalar()
    return next(models_of(spec or {}), None)


def _state(newest: Row[Any] | None, serving: Row[Any] | None) -> DeploymentState:
    answers = serving is not None and serving.status not in states.TERMINAL
    if newest is None:
        return "serving" if answers else "stopped"
    if newest.status in states.TERMINAL and answers:
        # Its update failed; the previous revision goes on.
        return "serving"
    if newest.status == states.CANCELED:
        return "stopped"
    if newest.status in states.TERMINAL:
        return "failed"
    if newest.state == control.SERVING:
        return "serving"
    return "updating" if answers else "starting"
