"""Environments: registered ones, and those of runs."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import Connection

from muster import errors
from muster.control.access import Action
from muster.server.database.records import find_run
from muster.server.environments import records
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import ReadRun, needs
from muster.server.http.paging import PageOf
from muster.server.people import audit
from muster.wire.environments import EnvironmentView, NewEnvironment, RunEnvironment

router = APIRouter(tags=["environments"])


@router.get("/environments", dependencies=[needs(Action.READ)])
async def list_environments(context: ContextOf, page: PageOf) -> list[EnvironmentView]:
    """Registered environments, each in its newest version."""
    return page.of(await context.database.read(records.list_all), lambda item: (item.name,))


@router.post("/environments", status_code=201, dependencies=[needs(Action.REGISTER)])
async def register_environment(body: NewEnvironment, context: ContextOf) -> EnvironmentView:
    """Register the next version of an environment."""
    audit.about(f"environment {body.name}")
    return await context.database.write(lambda t: records.register(context, t, body.name, body.spec))


@router.get("/environments/{name}", dependencies=[needs(Action.READ)])
async def show_environment(name: str, context: ContextOf, version: str | None = None) -> EnvironmentView:
    """A registered environment, its newest version unless one is named."""
    return await context.database.read(lambda c: records.show(c, name, version))


@router.get("/runs/{ref}/environment")
async def environment_of_run(run: ReadRun, context: ContextOf) -> RunEnvironment:
    """What a run's environment was built from, and the versions that it got."""

    def load(connection: Connection) -> RunEnvironment:
        row = find_run(connection, run)
        if row.environment is None:
            raise errors.NotFound(
                f"nothing was built for the run {row.id}",
                "It ran in the Python that submitted it, or in the nodes' own.",
            )
        return records.shown(row.environment)

    return await context.database.read(load)
