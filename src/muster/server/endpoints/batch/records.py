"""Batch endpoints and their deployments in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from muster import errors
from muster.control.access import Caller
from muster.host import clock
from muster.job.rules import is_snapshot
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.endpoints.lookup import BATCH, merged_tags
from muster.wire.codec import Json, from_json
from muster.wire.serving.batch import (
    BatchDeploymentView,
    BatchEndpointChanges,
    BatchEndpointView,
    NewBatchDeployment,
    NewBatchEndpoint,
)

_ENDPOINTS, _DEPLOYMENTS = tables.batch_endpoints, tables.batch_deployments

find, owned, deployments = BATCH.find, BATCH.owned, BATCH.deployments


def add(transaction: Transaction, new: NewBatchEndpoint, caller: Caller) -> None:
    """Create a batch endpoint; it accepts requests once something is deployed."""
    BATCH.refuse_taken(transaction.connection, new.name)
    now = clock.now()
    row = {
        "name": new.name, "description": new.description, "tags": dict(new.tags), "properties": dict(new.properties),
        "default_deployment": None, "created_by": caller.subject, "created_at": now, "updated_at": now,
    }  # fmt: skip
    transaction.execute(insert(_ENDPOINTS), row)


def find_deployment(connection: Connection, row: Row[Any], name: str | None) -> Row[Any]:
    """The named deployment, or the endpoint's default."""
    if name is None and row.default_deployment is None:
        raise errors.Conflict(
            f"nothing is deployed to the batch endpoint {row.name}",
            f"`muster batch-endpoint deploy -f FILE --endpoint {row.name}` deploys to it.",
        )
    return BATCH.find_deployment(connection, row.name, name or row.default_deployment)


def change(transaction: Transaction, row: Row[Any], changes: BatchEndpointChanges) -> None:
    """Change a batch endpoint's description and tags, and the deployment for requests that name none."""
    columns: dict[str, Json] = {"tags": merged_tags(row, changes.tags)}
    if changes.description is not None:
        columns["description"] = changes.description
    if changes.default_deployment is not None:
        columns["default_deployment"] = find_deployment(transaction.connection, row, changes.default_deployment).name
    touch(transaction, row.name, **columns)


def touch(transaction: Transaction, endpoint: str, **columns: Json) -> None:
    values = {**columns, "updated_at": clock.now()}
    transaction.execute(update(_ENDPOINTS).where(_ENDPOINTS.c.name == endpoint).values(values))


def remove_deployment(transaction: Transaction, row: Row[Any], name: str) -> None:
    """Delete a deployment; its runs stay. The default one can only be deleted last."""
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
    """Delete a batch endpoint with its deployments; its runs stay."""
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
    """The snapshots with the code of deployments, and the folders that images are built from: later runs need them."""
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
