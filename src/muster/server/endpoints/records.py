"""Endpoints and deployments in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from muster import errors
from muster.control import endpoints as control
from muster.control.access import Caller
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.endpoints import certificates, keys
from muster.server.endpoints.lookup import ONLINE, merged_tags
from muster.server.runs import submission
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.people import ADMIN
from muster.wire.serving.endpoints import EndpointChanges, EndpointKeys, NewEndpoint, NewEndpointKey

_ENDPOINTS, _DEPLOYMENTS, _RUNS = tables.endpoints, tables.deployments, tables.endpoint_runs
_LATEST = tables.runs.c.attempt

find, owned = ONLINE.find, ONLINE.owned
deployments, find_deployment = ONLINE.deployments, ONLINE.find_deployment


def add(context: Context, transaction: Transaction, new: NewEndpoint, caller: Caller) -> None:
    """Create an endpoint; it answers once something is deployed."""
    ONLINE.refuse_taken(transaction.connection, new.name)
    if new.host is not None and context.tokens.people.is_shared and caller.role != ADMIN:
        raise errors.AccessDenied(
            f"the endpoint {new.name} is to listen at {new.host}, which opens it to everybody who reaches that address",
            "An administrator may create it so; without `host` it answers inside its cluster.",
        )
    if new.compute is not None:
        submission.find_cluster(transaction.connection, new.compute)
    now = clock.now()
    row = {
        "name": new.name, "description": new.description, "tags": dict(new.tags), "properties": dict(new.properties),
        "auth_mode": new.auth_mode, "traffic": {}, "mirror": {}, "compute": new.compute, "host": new.host,
        "port": new.port, "version": 1, "created_by": caller.subject, "created_at": now, "updated_at": now,
        "sealed": keys.seal(context, new.name, certificates.with_tls(keys.fresh(), new)),
    }  # fmt: skip
    transaction.execute(insert(_ENDPOINTS), row)


def open_runs(connection: Connection, endpoint: str | None = None) -> list[Row[Any]]:
    """Runs of one endpoint, or of all, that have not ended for it, with their state as runs; the newest last."""
    query = (
        select(_RUNS, tables.runs.c.status, tables.runs.c.verdict, tables.runs.c.compute, _LATEST.label("latest"))
        .join(tables.runs, tables.runs.c.id == _RUNS.c.run_id)
        .where(_RUNS.c.state != control.ENDED)
        .order_by(_RUNS.c.revision, _RUNS.c.since)
    )
    return list(connection.execute(query.where(_RUNS.c.endpoint == endpoint) if endpoint else query).all())


def run_of(connection: Connection, run: str) -> Row[Any]:
    """A run's row as part of its endpoint; NotFound for any other run."""
    row = connection.execute(select(_RUNS).where(_RUNS.c.run_id == run)).first()
    if row is None:
        raise errors.NotFound(f"the run {run} belongs to no endpoint", "Only those of endpoints report here.")
    return row


def is_lost(run: Row[Any]) -> bool:
    """Whether the known replicas of a run are from an attempt that is over."""
    is_over = run.status in (*states.TERMINAL, states.QUEUED) or run.latest > run.attempt
    return is_over and any(not replica.get("gone") for replica in run.replicas)


def set_run(transaction: Transaction, run: str, **columns: Any) -> None:
    transaction.execute(update(_RUNS).where(_RUNS.c.run_id == run).values(**columns))


def change(
    context: Context, transaction: Transaction, row: Row[Any], changes: EndpointChanges, trial: Json = None
) -> None:
    """Change an endpoint's description, tags and traffic; `trial`: the record of a deployment that is watched."""
    known = deployments(transaction.connection, row.name)
    columns: dict[str, Json] = {"tags": merged_tags(row, changes.tags)}
    if changes.traffic is not None:
        # A new share of the traffic ends a trial; another starts if one is asked for.
        columns["canary"] = trial
    if changes.description is not None:
        columns["description"] = changes.description
    for column, given in (("traffic", changes.traffic), ("mirror", changes.mirror_traffic)):
        if given is not None:
            _check_known(row.name, column, given, known)
            columns[column] = {name: share for name, share in given.items() if share}
    traffic, mirror = columns.get("traffic", row.traffic), columns.get("mirror", row.mirror)
    if both := [name for name in mirror if traffic.get(name)]:
        raise errors.JobError(
            f"{both[0]} has traffic of its own, so that it cannot get copies of others' too",
            "Mirror to a deployment whose share is 0.",
        )
    touch(context, transaction, row.name, **columns)


def _check_known(endpoint: str, column: str, given: Mapping[str, int], known: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known:
            raise errors.NotFound(
                f"{column}: the endpoint {endpoint} has no deployment {name!r}",
                f"It has: {', '.join(known) or 'none'}. `muster endpoint deploy -f FILE` makes one.",
            )


def touch(context: Context, transaction: Transaction, endpoint: str, **columns: Any) -> None:
    """Change an endpoint's row, and notify its front door."""
    values = {**columns, "version": _ENDPOINTS.c.version + 1, "updated_at": clock.now()}
    transaction.execute(update(_ENDPOINTS).where(_ENDPOINTS.c.name == endpoint).values(values))
    transaction.after_commit.append(lambda: context.hub.wake_soon(lambda: context.endpoints.wake(endpoint)))


def renew_key(context: Context, transaction: Transaction, row: Row[Any], wanted: NewEndpointKey) -> EndpointKeys:
    """Renew one of an endpoint's keys."""
    kept = keys.renewed(keys.opened(context, row), row.auth_mode, wanted.kind)
    touch(context, transaction, row.name, sealed=keys.seal(context, row.name, kept))
    return keys.shown(kept, row.name, row.auth_mode, clock.now())


def remove_deployment(context: Context, transaction: Transaction, row: Row[Any], name: str) -> None:
    """Delete a deployment that has no traffic; its runs end once they are unused."""
    find_deployment(transaction.connection, row.name, name)
    if share := row.traffic.get(name, 0):
        raise errors.Conflict(
            f"the deployment {name} gets {share} % of the traffic of {row.name}",
            f"Give it to others first: `muster endpoint traffic {row.name} OTHER=100`, or to none: `… {name}=0`.",
        )
    mine = _DEPLOYMENTS.c.endpoint == row.name, _DEPLOYMENTS.c.name == name
    transaction.execute(delete(_DEPLOYMENTS).where(*mine))
    mirror = {other: value for other, value in row.mirror.items() if other != name}
    touch(context, transaction, row.name, mirror=mirror)


def remove(context: Context, transaction: Transaction, row: Row[Any]) -> list[str]:
    """Delete an endpoint with its deployments. Returns its runs, which the caller must cancel."""
    runs = [item.run_id for item in open_runs(transaction.connection, row.name)]
    touch(context, transaction, row.name)
    for table, column in ((_DEPLOYMENTS, _DEPLOYMENTS.c.endpoint), (_RUNS, _RUNS.c.endpoint)):
        transaction.execute(delete(table).where(column == row.name))
    transaction.execute(delete(_ENDPOINTS).where(_ENDPOINTS.c.name == row.name))
    return runs
