"""What routes ask for: the server's context, who is calling, and the node whose agent calls."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from muster import errors
from muster.server.context import Context
from muster.server.people.access import Caller


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


NodeOf = Annotated[str, Depends(_node)]
"""The node of the path `/agents/{node}/…`: its agent calls, and so it has been heard of."""


def who(caller: Caller, said: str | None) -> str:
    """The name of a caller: the owner's token is of a workspace, and whoever uses it says their own."""
    return said[:255] if caller.subject == "owner" and said else caller.subject
