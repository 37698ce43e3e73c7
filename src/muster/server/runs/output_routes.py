"""Agents claim the names of what they bring to a datastore."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.nodes.agent_routes import own
from muster.server.runs import outputs

router = APIRouter(prefix="/agents", tags=["agents"])


class Claim(BaseModel):
    run: str
    attempt: int
    output: str
    files: list[dict[str, Any]]


@router.post("/{node}/outputs")
async def claim(node: str, body: Claim, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Whether the gang has succeeded; then the name that each file of an output gets."""
    own(caller, node)
    context.hub.heard(node)
    return await context.database.write(
        lambda transaction: outputs.claim(transaction, body.run, body.attempt, node, body.output, body.files)
    )
