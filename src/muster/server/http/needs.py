"""The rights that each route requires. A route that declares none is for administrators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from sqlalchemy import Connection

from muster.control.access import RUN, Action, Caller, require, require_any
from muster.server.context import Context
from muster.server.database.records import RunRow, find_run
from muster.server.http.dependencies import SAYS, CallerOf, ContextOf, saying
from muster.server.people import audit


def needs(action: Action, *, asks_owner: bool = False) -> Any:
    """A route that acts on something without an owner; with `asks_owner` the route checks the owner itself."""

    async def check(request: Request, caller: CallerOf) -> None:
        names = [str(value) for value in request.path_params.values()]
        begin(action, "/".join(name for name in names if name))
        if asks_owner:
            require_any(caller, action)
        else:
            require(caller, action, None, request.url.path)

    return Depends(saying(check, action))


def run_for(action: Action) -> Any:
    """The id of the run that `{ref}` names, for a caller who may act on it."""

    async def check(ref: str, context: ContextOf, caller: CallerOf) -> str:
        begin(action, ref)
        return (await admitted_runs(context, caller, action, [ref]))[0]

    return Depends(saying(check, action))


async def admitted_runs(context: Context, caller: Caller, action: Action, refs: Sequence[str]) -> list[str]:
    """The ids of runs, if the caller may act on all of them. From here on only ids are used: a name or
    `@latest` may mean another run a moment later."""
    require_any(caller, action)

    def look(connection: Connection) -> list[RunRow]:
        return [find_run(connection, ref) for ref in refs]

    rows = await context.database.read(look)
    for row in rows:
        require(caller, action, row.id if caller.role == RUN else row.submitted_by, f"the run {row.id}")
    audit.about(", ".join(row.id for row in rows))
    return [row.id for row in rows]


ReadRun = Annotated[str, run_for(Action.READ)]
ChangeRun = Annotated[str, run_for(Action.CHANGE_RUN)]
LogToRun = Annotated[str, run_for(Action.LOG_TO_RUN)]
CancelRun = Annotated[str, run_for(Action.CANCEL_RUN)]
EnterRun = Annotated[str, run_for(Action.ENTER_RUN)]
RetryRun = Annotated[str, run_for(Action.RETRY_RUN)]
DeleteRun = Annotated[str, run_for(Action.DELETE_RUN)]


async def undeclared(request: Request) -> None:
    """A check of every route: one that declares nothing is refused to all but administrators."""
    route = request.scope.get("route")
    caller = getattr(request.state, "caller", None)
    if caller is not None and not any(actions_of(route.dependant) if route is not None else ()):
        require_any(caller, Action.MANAGE_WORKSPACE)


def actions_of(dependant: Dependant) -> Iterator[Action]:
    """The actions that a route declares."""
    found = getattr(dependant.call, SAYS, None)
    if found is not None:
        yield found
    for inner in dependant.dependencies:
        yield from actions_of(inner)


def begin(action: Action, target: str) -> None:
    """Begin the audit entry of this call."""
    deed = audit.CURRENT.get()
    if deed is not None:
        deed.action, deed.target = action, target
