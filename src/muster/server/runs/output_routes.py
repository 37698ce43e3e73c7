"""Agents claim the names of what they bring to a datastore."""

from __future__ import annotations

from fastapi import APIRouter

from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.nodes.agent_routes import own
from muster.server.runs import outputs
from muster.wire.node.requests import OutputClaim, OutputNames

router = APIRouter(prefix="/agents", tags=["agents"])


@router.post("/{node}/outputs")
async def claim(node: str, body: OutputClaim, context: ContextOf, caller: CallerOf) -> OutputNames:
    """Whether the gang has succeeded; then the name that each file of an output gets."""
    own(caller, node)
    context.hub.heard(node)
    return await context.database.write(lambda transaction: outputs.claim(transaction, node, body))
