"""Models: list, register, show."""

from __future__ import annotations

from fastapi import APIRouter

from muster.control.access import Action
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.models import registry
from muster.server.people import audit
from muster.wire.models import ModelView, NewModel

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", dependencies=[needs(Action.READ)])
async def list_models(context: ContextOf, page: PageOf, name: str | None = None) -> list[ModelView]:
    """Registered models, newest version first."""
    found = await context.database.read(lambda c: registry.list_models(c, name))
    return page.of(found, lambda item: (item.name, -item.version))


@router.post("", status_code=201, dependencies=[needs(Action.REGISTER)])
async def register_model(body: NewModel, context: ContextOf) -> ModelView:
    """Register the next version of a model."""
    audit.about(f"model {body.name}")
    return await context.database.write(
        lambda transaction: registry.add_model(
            transaction, body.name, body.path, body.run_id, body.description, body.tags, body.properties
        )
    )


@router.get("/{name}", dependencies=[needs(Action.READ)])
async def show_model(name: str, context: ContextOf, version: int | None = None) -> ModelView:
    """A model, its newest version unless one is named."""
    return await context.database.read(lambda c: registry.find_model(c, name, version))
