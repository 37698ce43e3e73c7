"""Batch endpoints and their deployments as they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from muster import errors
from muster.control.access import Action, Caller, require
from muster.host import clock
from muster.job.rules import is_snapshot
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.wire.codec import Json, from_json
from muster.wire.serving.batch import (
    BatchDeploymentView,
    BatchEndpointChanges,
    BatchEndpointView,
    NewBatchDeployment,
    NewBatchEndpoint,
)

_ENDPOINTS, _DEPLOYMENTS = tables.batch_endpoints, tables.batch_deployments


def add(transaction: Transaction, new: NewBatchEndpoint, caller: Caller) -> None:
    """Create a batch endpoint; it takes requests once something is deployed."""
    known = transaction.execute(select(_ENDPOINTS.c.name).where(_ENDPOINTS.c.name == new.name)).first()
    if known is not None:
        raise errors.Conflict(
            f"there is a batch endpoint {new.name} already", f"`muster batch-endpoint show {new.name}` shows it."
        )
    now = clock.now()
    row = {
        "name": new.name, "description": new.description, "tags": dict(new.tags), "properties": dict(new.properties),
        "default_deployment": None, "created_by": caller.subject, "created_at": now, "updated_at": now,
    }  # fmt: skip
    transaction.execute(insert(_ENDPOINTS), row)


def find(connection: Connection, name: str) -> Row[Any]:
    """A batch endpoint's row, or a refusal that names the known ones."""
    row = connection.execute(select(_ENDPOINTS).where(_ENDPOINTS.c.name == name)).first()
    if row is None:
        known = connection.execute(select(_ENDPOINTS.c.name).order_by(_ENDPOINTS.c.name).limit(20)).scalars().all()
        listed = f"There are: {', '.join(known)}." if known else f"`muster batch-endpoint create {name}` makes one."
        raise errors.NotFound(f"there is no batch endpoint {name!r}", listed)
    return row


def owned(connection: Connection, name: str, caller: Caller) -> Row[Any]:
    """The same, for a caller who may change it."""
    row = find(connection, name)
    require(caller, Action.MANAGE_ENDPOINT, row.created_by, f"the batch endpoint {name}")
    return row


def deployments(connection: Connection, endpoint: str) -> dict[str, Row[Any]]:
    """A batch endpoint's deployments by name."""
    query = select(_DEPLOYMENTS).where(_DEPLOYMENTS.c.endpoint == endpoint).order_by(_DEPLOYMENTS.c.name)
    return {row.name: row for row in connection.execute(query)}


def find_deployment(connection: Connection, row: Row[Any], name: str | None) -> Row[Any]:
    """The deployment that is named, or the endpoint's default."""
    known = deployments(connection, row.name)
    if name is None and row.default_deployment is None:
        raise errors.Conflict(
            f"nothing is deployed to the batch endpoint {row.name}",
            f"`muster batch-endpoint deploy -f FILE --endpoint {row.name}` deploys to it.",
        )
    chosen = name or row.default_deployment
    if chosen not in known:
        raise errors.NotFound(
            f"the batch endpoint {row.name} has no deployment {chosen!r}", f"It has: {', '.join(known) or 'none'}."
        )
    return known[chosen]


def change(transaction: Transaction, row: Row[Any], changes: BatchEndpointChanges) -> None:
    """Change a batch endpoint's words, and where requests go that name no deployment."""
    tags = {key: value for key, value in {**row.tags, **(changes.tags or {})}.items() if value is not None}
    columns: dict[str, Json] = {"tags": tags}
    if changes.description is not None:
        columns["description"] = changes.description
    if changes.default_deployment is not None:
        columns["default_deployment"] = find_deployment(transaction.connection, row, changes.default_deployment).name
    touch(transaction, row.name, **columns)


def touch(transaction: Transaction, endpoint: str, **columns: Json) -> None:
    values = {**columns, "updated_at": clock.now()}
    transaction.execute(update(_ENDPOINTS).where(_ENDPOINTS.c.name == endpoint).values(values))


def remove_deployment(transaction: Transaction, row: Row[Any], name: str) -> None:
    """Forget a deployment; its runs stay. The default one goes last."""
    found = find_deployment(transaction.connection, row, name)
    others = [other for other in deployments(transaction.connection, row.name) if other != name]
    if found.name == row.default_deployment and others:
        raise errors.Conflict(
            f"{name} is the default deployment of the batch endpoint {row.name}",
            f"Choose another first: `muster batch-endpoint update {row.name} --default {others[0]}`.",
        )
    mine = _DEPLOYMENTS.c.endpoint == row.name, _DEPLOYMENTS.c.name == name
    transaction.execute(delete(_DEPLOYMENTS).where(*mine))
    touch(transaction, row.name, **({"default_deployment": None} if not others else {}))


def remove(transaction: Transaction, row: Row[Any]) -> None:
    """Forget a batch endpoint with its deployments; its runs stay."""
    transaction.execute(delete(_DEPLOYMENTS).where(_DEPLOYMENTS.c.endpoint == row.name))
    transaction.execute(delete(_ENDPOINTS).where(_ENDPOINTS.c.name == row.name))


def listing(connection: Connection) -> list[BatchEndpointView]:
    """All batch endpoints, by name."""
    rows = connection.execute(select(_ENDPOINTS).order_by(_ENDPOINTS.c.name)).all()
    return [view(connection, row) for row in rows]


def view(connection: Connection, row: Row[Any]) -> BatchEndpointView:
    """One batch endpoint with its deployments."""
    return BatchEndpointView(
        row.name,
        row.default_deployment,
        tuple(_deployment_view(item, row) for item in deployments(connection, row.name).values()),
        row.description,
        row.tags,
        row.properties,
        row.created_by,
        row.created_at,
        row.updated_at,
    )


def kept_snapshots(connection: Connection) -> set[str]:
    """The code of deployments, and the folders that their images are built from: later runs need them."""
    found: set[str] = set()
    for row in connection.execute(select(*_DEPLOYMENTS.c["snapshot", "spec"])):
        environment = row.spec["submission"]["spec"].get("environment")
        build = environment.get("build") if isinstance(environment, Mapping) else None
        path = str(build.get("path", "")) if isinstance(build, Mapping) else ""
        found |= {digest for digest in (row.snapshot, path.partition(":")[2] if is_snapshot(path) else "") if digest}
    return found


def _deployment_view(row: Row[Any], endpoint: Row[Any]) -> BatchDeploymentView:
    new = from_json(NewBatchDeployment, row.spec)
    spec: Mapping[str, Any] = new.submission.spec
    return BatchDeploymentView(
        row.name,
        row.endpoint,
        row.name == endpoint.default_deployment,
        row.revision,
        row.model,
        new.settings,
        spec["resources"]["instance_count"],
        spec["distribution"]["process_count_per_instance"] or 1,
        spec["compute"],
        new.description,
        new.tags,
        row.created_at,
        row.updated_at,
    )
