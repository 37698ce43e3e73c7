"""Dependencies of routes: the server's context, the caller, and the node whose agent calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request

from muster import errors
from muster.control.access import Action, Caller
from muster.server.context import Context

Check = TypeVar("Check", bound=Callable[..., Any])

SAYS = "needed_action"
"""The attribute in which a dependency declares the action that it requires."""


def saying(check: Check, action: Action) -> Check:
    """A dependency that declares the action it requires: each route has one."""
    setattr(check, SAYS, action)
    return check


async def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


async def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


ContextOf = Annotated[Context, Depends(_context)]
CallerOf = Annotated[Caller, Depends(_caller)]


def own(caller: Caller, node: str) -> None:
    """Refuse a caller that is not the node's agent."""
    if caller.role != "admin" and (caller.role != "agent" or caller.subject != node):
        raise errors.AccessDenied(f"this token does not belong to the agent of {node}")


async def _node(node: str, context: ContextOf, caller: CallerOf) -> str:
    own(caller, node)
    context.hub.heard(node)
    return node


NodeOf = Annotated[str, Depends(saying(_node, Action.SERVE_NODE))]
"""The node of the path `/agents/{node}/…`: its agent calls, which is noted as a sign of life."""
