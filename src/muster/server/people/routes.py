"""Secrets: set, list by name, remove. No call gives a value back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.people import secrets

router = APIRouter(prefix="/secrets", tags=["secrets"])


class SecretBody(BaseModel):
    value: str = Field(repr=False)


@router.get("")
async def list_secrets(context: ContextOf) -> list[dict[str, Any]]:
    """The names of secrets, and when they were set."""
    return await context.database.read(secrets.listing)


@router.put("/{name}", status_code=201)
async def put_secret(name: str, body: SecretBody, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Set a secret, or set it anew."""
    return await context.database.write(lambda t: secrets.put(context, t, name, body.value, caller.subject))


@router.delete("/{name}", status_code=204)
async def remove_secret(name: str, context: ContextOf) -> Response:
    """Remove a secret; runs that name it are refused from then on."""
    await context.database.write(lambda t: secrets.remove(t, name))
    return Response(status_code=204)
