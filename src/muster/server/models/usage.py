"""Which endpoints serve a model: it is not deleted beneath them."""

from __future__ import annotations

from sqlalchemy import Connection, select

from muster import errors
from muster.server.database import tables


def endpoints_of(connection: Connection, name: str, version: int | None) -> list[str]:
    """ENDPOINT/DEPLOYMENT of those that serve a model, or one version of it."""
    table = tables.deployments
    rows = connection.execute(select(*table.c["endpoint", "name", "model"]).where(table.c.model.is_not(None)))
    wanted = None if version is None else f"{name}:{version}"
    return sorted(
        f"{row.endpoint}/{row.name}"
        for row in rows
        if (row.model == wanted if wanted else row.model.rpartition(":")[0] == name)
    )


def refuse_used(connection: Connection, name: str, version: int | None) -> None:
    """Refuse to delete what an endpoint serves: its replicas could not be started again."""
    if used := endpoints_of(connection, name, version):
        what = name if version is None else f"{name}:{version}"
        endpoint, _, deployment = used[0].partition("/")
        raise errors.Conflict(
            f"the model {what} is served by {', '.join(used)}",
            f"Deploy another version there first, or end it: `muster endpoint undeploy {endpoint} {deployment}`.",
        )
