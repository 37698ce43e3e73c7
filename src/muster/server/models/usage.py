"""The users of a model: it is not deleted while an endpoint serves it, or a run still has to fetch it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, select

from muster import errors
from muster.control import endpoints as control
from muster.server.database import tables
from muster.wire import states
from muster.wire.codec import Json

_INPUT = "models:/"


def endpoints_of(connection: Connection, name: str, version: int | None) -> list[str]:
    """ENDPOINT/DEPLOYMENT of the online deployments that serve a model, or one version of it.

    The newest revision counts, whether or not it started, and each older one whose run has not ended for its
    endpoint: that one answers in the meantime.
    """
    deployments, members, runs = tables.deployments, tables.endpoint_runs, tables.runs
    found = {
        f"{row.endpoint}/{row.name}"
        for row in connection.execute(select(*deployments.c["endpoint", "name", "model"]))
        if row.model and _is_meant(row.model, name, version)
    }
    query = (
        select(members.c.endpoint, members.c.deployment, runs.c.spec)
        .join(runs, runs.c.id == members.c.run_id)
        .where(members.c.state != control.ENDED, members.c.deployment.is_not(None))
    )
    for row in connection.execute(query):
        if any(_is_meant(model, name, version) for model in models_of(row.spec)):
            found.add(f"{row.endpoint}/{row.deployment}")
    return sorted(found)


def batch_endpoints_of(connection: Connection, name: str, version: int | None) -> list[str]:
    """ENDPOINT/DEPLOYMENT of the batch endpoints that score with a model, or one version of it."""
    deployments = tables.batch_deployments
    return [
        f"{row.endpoint}/{row.name}"
        for row in connection.execute(select(*deployments.c["endpoint", "name", "model"]).order_by(deployments.c.name))
        if row.model and _is_meant(row.model, name, version)
    ]


def runs_of(connection: Connection, name: str, version: int | None) -> list[str]:
    """Runs that are not over and have a model, or one version of it, as an input."""
    runs = tables.runs
    query = select(runs.c.id, runs.c.spec).where(runs.c.status.not_in(states.TERMINAL)).order_by(runs.c.seq)
    return [
        str(row.id)
        for row in connection.execute(query)
        if any(_is_meant(model, name, version) for model in models_of(row.spec))
    ]


def models_of(spec: Mapping[str, Json]) -> Iterator[str]:
    """NAME:VERSION of the registered models that a run has as inputs."""
    inputs = spec.get("inputs")
    for item in inputs.values() if isinstance(inputs, Mapping) else ():
        path = str(item.get("path", "")) if isinstance(item, Mapping) else ""
        name, _, version = path.removeprefix(_INPUT).partition("/")
        if path.startswith(_INPUT) and version.isdecimal():
            yield f"{name}:{version}"


def refuse_used(connection: Connection, name: str, version: int | None) -> None:
    """Refuse to delete a model that is served or still to be fetched: replicas and ranks could not be restarted."""
    what = name if version is None else f"{name}:{version}"
    if used := endpoints_of(connection, name, version):
        endpoint, _, deployment = used[0].partition("/")
        raise errors.Conflict(
            f"the model {what} is served by {', '.join(used)}",
            f"Deploy another version there first, or end it: `muster endpoint undeploy {endpoint} {deployment}`.",
        )
    if used := batch_endpoints_of(connection, name, version):
        endpoint, _, deployment = used[0].partition("/")
        raise errors.Conflict(
            f"the batch endpoints' deployments {', '.join(used)} score with the model {what}",
            f"Deploy another version there first, or end it: `muster batch-endpoint undeploy {endpoint} {deployment}`.",
        )
    if active := runs_of(connection, name, version):
        raise errors.Conflict(
            f"the model {what} is used by {', '.join(active[:5])}" + (" and others" if len(active) > 5 else ""),
            f"Wait for the end of what uses it, or cancel that: `muster cancel {active[0]}`.",
        )


def _is_meant(model: str, name: str, version: int | None) -> bool:
    return model == f"{name}:{version}" if version is not None else model.rpartition(":")[0] == name
