"""What routes ask for: the server's context and who is calling."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from muster.server.context import Context
from muster.server.people.access import Caller


async def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


async def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


ContextOf = Annotated[Context, Depends(_context)]
CallerOf = Annotated[Caller, Depends(_caller)]
