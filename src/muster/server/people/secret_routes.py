"""Secrets: set, list by name, remove. No call returns a value."""

from __future__ import annotations

from fastapi import APIRouter, Response

from muster.control.access import Action
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.people import secrets
from muster.wire.secrets import NewSecret, SecretView

router = APIRouter(prefix="/secrets", tags=["secrets"])


@router.get("", dependencies=[needs(Action.READ)])
async def list_secrets(context: ContextOf, page: PageOf) -> list[SecretView]:
    """The names of secrets, and when they were set."""
    return page.of(await context.database.read(secrets.listing), lambda item: (item.name,))


@router.put("/{name}", status_code=201, dependencies=[needs(Action.SET_SECRET, asks_owner=True)])
async def put_secret(name: str, body: NewSecret, context: ContextOf, caller: CallerOf) -> SecretView:
    """Set or replace a secret."""
    return await context.database.write(lambda t: secrets.put(context, t, name, body, caller))


@router.delete("/{name}", status_code=204, dependencies=[needs(Action.DELETE_SECRET, asks_owner=True)])
async def remove_secret(name: str, context: ContextOf, caller: CallerOf) -> Response:
    """Remove a secret; runs that name it are refused from then on."""
    await context.database.write(lambda t: secrets.remove(t, name, caller))
    return Response(status_code=204)
