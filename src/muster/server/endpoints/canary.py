"""Deployments on trial: the front door's figures are compared, and a deployment that does worse loses its traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, select

from muster import errors
from muster.control.canary import Limits, Seen, reason_to_step_back, since, together
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note
from muster.server.endpoints import records
from muster.wire.codec import Json, from_json, to_json
from muster.wire.serving.canary import CanaryRules, CanaryView, Counted
from muster.wire.serving.endpoints import ServingFigures

_ENDPOINTS = tables.endpoints


def begun(
    context: Context, connection: Connection, row: Row[Any], rules: CanaryRules, traffic: Mapping[str, int]
) -> Json:
    """The record of a trial at its start: the traffic before it, and the counts so far."""
    if not traffic.get(rules.deployment):
        raise errors.JobError(
            f"canary: {rules.deployment} gets no traffic, so that there is nothing to watch",
            f"Give it a share, such as {rules.deployment}=10.",
        )
    if row.traffic.get(rules.deployment) or not row.traffic:
        raise errors.Conflict(
            f"canary: {rules.deployment} gets traffic already, or nothing else does: there is nothing to step back to",
            f"Give all of it to another deployment first: `muster endpoint traffic {row.name} OTHER=100`.",
        )
    counted = {
        name: Counted(item.requests, item.failed) for name, item in _figures(context, connection, row.name).items()
    }
    kept: Json = to_json(CanaryView(rules, "watching", dict(row.traffic), counted, clock.now()))
    return kept


def watched(connection: Connection) -> list[Row[Any]]:
    """Endpoints with a deployment on trial."""
    rows = connection.execute(select(_ENDPOINTS).where(_ENDPOINTS.c.canary.is_not(None))).all()
    return [row for row in rows if row.canary and from_json(CanaryView, row.canary).state == "watching"]


def why_back(context: Context, connection: Connection, row: Row[Any]) -> str | None:
    """Why the deployment on trial should lose its traffic now; None if the trial goes on."""
    trial = from_json(CanaryView, row.canary)
    seen = {
        name: since(
            Seen(item.requests, item.failed, item.p95_ms),
            Seen(known.requests, known.failed) if (known := trial.counted.get(name)) else Seen(),
        )
        for name, item in _figures(context, connection, row.name).items()
    }
    rules = trial.rules
    others = together([item for name, item in seen.items() if name != rules.deployment and trial.before.get(name)])
    limits = Limits(rules.errors_percent, rules.slower, rules.least_requests)
    return reason_to_step_back(seen.get(rules.deployment, Seen()), others, limits)


def step_back(context: Context, transaction: Transaction, endpoint: str) -> None:
    """Restore the earlier traffic if there is still a reason to; the trial's run gets a note."""
    row = transaction.execute(select(_ENDPOINTS).where(_ENDPOINTS.c.name == endpoint)).first()
    trial = from_json(CanaryView, row.canary) if row is not None and row.canary else None
    if row is None or trial is None or trial.state != "watching":
        return
    why = why_back(context, transaction.connection, row)
    if why is None:
        return
    known = records.deployments(transaction.connection, endpoint)
    back = {name: share for name, share in trial.before.items() if name in known}
    over = replace(trial, state="stepped back", why=why, ended_at=clock.now())
    columns: dict[str, Json] = {"canary": to_json(over)}
    if sum(back.values()) == 100:
        columns["traffic"] = back
    records.touch(context, transaction, endpoint, **columns)
    shown = ", ".join(f"{name} {share} %" for name, share in back.items())
    for run in records.open_runs(transaction.connection, endpoint):
        if run.deployment == trial.rules.deployment:
            add_note(transaction, run.run_id, "warning", f"{why}: its traffic goes back ({shown})")


def _figures(context: Context, connection: Connection, endpoint: str) -> Mapping[str, ServingFigures]:
    doors = [run for run in records.open_runs(connection, endpoint) if run.deployment is None]
    return context.endpoints.figures(doors[-1].run_id if doors else None)
