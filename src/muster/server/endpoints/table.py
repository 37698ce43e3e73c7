"""The table for the front door of an endpoint, and the reports of endpoints' runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, select

from muster.control import endpoints as control
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.endpoints import certificates, keys, records
from muster.server.endpoints.views import ANYWHERE
from muster.wire.codec import Json, from_json, to_json
from muster.wire.serving.endpoints import Backend, NewDeployment, Route, RouteTable, ServingOrders, ServingReport

_LOOPBACK = "127.0.0.1"


def load(context: Context, connection: Connection, run: str) -> RouteTable:
    """The table for a front door: deployments with their shares, and the replicas that serve them."""
    mine = records.run_of(connection, run)
    row = records.find(connection, mine.endpoint)
    kept = keys.opened(context, row)
    runs = records.open_runs(connection, row.name)
    door = next(item for item in runs if item.run_id == run)
    deployments = records.deployments(connection, row.name).items()
    return RouteTable(
        version=row.version,
        endpoint=row.name,
        host=row.host or _host_on(context, connection, door.compute, door.address or _LOOPBACK),
        port=row.port,
        keys=(kept.primary, kept.secondary) if row.auth_mode == "key" else (),
        token_key="" if row.auth_mode == "key" else kept.signing,
        deployments=tuple(_route(row, item, name, runs, kept) for name, item in deployments),
        public=row.host is not None,
        certificate=kept.certificate,
        private_key=kept.private_key,
    )


def _route(row: Row[Any], deployment: Row[Any], name: str, runs: list[Row[Any]], kept: keys.Kept) -> Route:
    spec = from_json(NewDeployment, deployment.spec)
    limits = spec.limits
    backends = tuple(
        Backend(
            run.run_id,
            run.address,
            replica["port"],
            replica["ready"],
            kept.inner(run.run_id),
            replica.get("gone", False),
        )
        for run in runs
        if run.deployment == name and run.state == control.SERVING and run.address
        for replica in run.replicas
    )
    return Route(
        name, row.traffic.get(name, 0), row.mirror.get(name, 0), limits.timeout_ms, limits.concurrency,
        limits.queue_wait_ms, limits.idempotent, backends, spec.instances == 0,
    )  # fmt: skip


def take(context: Context, transaction: Transaction, run: str, report: ServingReport) -> ServingOrders:
    """Record where a run's replicas or its front door are; a change is passed on to those that use them."""
    mine = records.run_of(transaction.connection, run)
    columns = _changes(transaction.connection, mine, report)
    if columns:
        records.set_run(transaction, run, **columns)
    row = records.find(transaction.connection, mine.endpoint)
    moved = mine.deployment is None and report.port is not None and report.port != row.port
    if columns or moved:
        certified = _certified(context, row, mine.deployment, columns)
        records.touch(context, transaction, mine.endpoint, **({"port": report.port} if moved else {}), **certified)
        row = records.find(transaction.connection, mine.endpoint)
    return orders(context, transaction.connection, mine, row, report.attempt)


def _certified(context: Context, row: Row[Any], deployment: str | None, found: dict[str, Json]) -> dict[str, str]:
    """A certificate for the address at which a front door starts, if its endpoint uses TLS."""
    if deployment is not None or "address" not in found:
        return {}
    host = str(found["address"]) if row.host in (None, ANYWHERE) else str(row.host)
    kept = certificates.certified(keys.opened(context, row), host)
    return {} if kept is None else {"sealed": keys.seal(context, row.name, kept)}


def is_news(connection: Connection, mine: Row[Any], report: ServingReport) -> bool:
    """Whether a report has something that is not recorded yet."""
    row = records.find(connection, mine.endpoint)
    moved = mine.deployment is None and report.port is not None and report.port != row.port
    return moved or bool(_changes(connection, mine, report))


def orders(context: Context, connection: Connection, mine: Row[Any], row: Row[Any], attempt: int) -> ServingOrders:
    """The orders for a run: the front door's key, the address to listen on, how many requests wait."""
    compute = connection.execute(select(tables.runs.c.compute).where(tables.runs.c.id == mine.run_id)).scalar()
    doors = [item for item in records.open_runs(connection, row.name) if item.deployment is None]
    door = context.endpoints.of(doors[-1].run_id) if doors else None
    waiting = sum(item.waiting for item in door.figures if item.deployment == mine.deployment) if door else 0
    host = _host_on(context, connection, compute, _address(connection, mine.run_id, attempt))
    followed = door is not None and door.seen == row.version
    return ServingOrders(keys.opened(context, row).inner(mine.run_id), host, waiting, followed)


def _changes(connection: Connection, mine: Row[Any], report: ServingReport) -> dict[str, Json]:
    if report.attempt < mine.attempt:
        # Reports of an earlier attempt that is still alive somewhere are ignored.
        return {}
    found: dict[str, Json] = {}
    if report.attempt != mine.attempt or mine.address is None:
        found = {"attempt": report.attempt, "address": _address(connection, mine.run_id, report.attempt)}
        found["replicas"] = []
    if report.replicas is not None:
        replicas = [to_json(replica) for replica in report.replicas]
        if replicas != found.get("replicas", mine.replicas):
            found["replicas"] = replicas
    return found


def _address(connection: Connection, run: str, attempt: int) -> str:
    placements = tables.placements
    mine = placements.c.run_id == run, placements.c.number == attempt, placements.c.node_rank == 0
    return connection.execute(select(placements.c.address).where(*mine)).scalar() or _LOOPBACK


def _host_on(context: Context, connection: Connection, compute: str | None, address: str) -> str:
    """Where processes on a cluster listen: at their node's address, or at the loopback address on this machine."""
    engine = connection.execute(select(tables.clusters.c.engine).where(tables.clusters.c.name == compute)).scalar()
    return _LOOPBACK if engine is None or context.nodes.engines.on_this_machine(engine) else address
