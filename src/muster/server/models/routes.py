"""Models: list, register, show, change, delete; their files."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection

from muster import errors
from muster.control.access import Action
from muster.models.references import ModelReference, parse
from muster.server.context import Context
from muster.server.data import asset_content, datastores
from muster.server.http import ranges
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.http.uploads import in_thread
from muster.server.models import content, registry
from muster.server.models.lineage import lineage_of
from muster.server.people import audit
from muster.storage.addresses import joined, parse_address, safe_path
from muster.storage.connectors.datastore import Datastore
from muster.wire.models import ModelChanges, ModelDetails, ModelView, NewModel

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", dependencies=[needs(Action.READ)])
async def list_models(
    context: ContextOf, page: PageOf, name: str | None = None, tag: Annotated[list[str] | None, Query()] = None
) -> list[ModelView]:
    """Registered models, newest version first; `tag` is NAME=VALUE or NAME."""
    found = await context.database.read(lambda c: registry.list_models(c, name, tag or ()))
    return page.of(found, lambda item: (item.name, -item.version))


@router.post("", status_code=201, dependencies=[needs(Action.REGISTER)])
async def register_model(body: NewModel, context: ContextOf, caller: CallerOf) -> ModelView:
    """Register the next version of a model: files of a run, or what lies in a datastore."""
    audit.about(f"model {body.name}")
    if body.address is not None:
        return await in_thread(lambda: content.register(context, body, caller.subject))
    if body.run_id is not None:
        await in_thread(partial(content.require_files, context, body.run_id, body.path))
    made = await context.database.write(
        lambda transaction: registry.add_model(
            transaction,
            body.name,
            body.path,
            body.run_id,
            body.description,
            body.tags,
            body.properties,
            kind=body.type or "custom_model",
            version=body.version,
            user=caller.subject,
        )
    )
    return await in_thread(lambda: _settled(context, made))


@router.get("/{name}", dependencies=[needs(Action.READ)])
async def show_model(name: str, context: ContextOf, version: int | None = None) -> ModelView:
    """A model, its newest version unless one is named."""
    return await context.database.read(lambda c: registry.find_model(c, name, version))


@router.get("/{name}/details", dependencies=[needs(Action.READ)])
async def show_details(
    name: str, context: ContextOf, version: int | None = None, alias: str | None = None, stage: str | None = None
) -> ModelDetails:
    """A version with its files and where it comes from: by number, by alias, by stage, or the newest."""
    wanted = parse(f"models:/{name}/{stage}") if stage else ModelReference(name, version, alias)
    assert isinstance(wanted, ModelReference)

    def look(connection: Connection) -> ModelDetails:
        model = registry.resolve(connection, wanted)
        return ModelDetails(model, registry.files(connection, model), lineage_of(connection, model))

    found = await context.database.read(look)
    if found.model.num_files is not None:
        return found
    await in_thread(lambda: _settled(context, found.model))
    return await context.database.read(look)


@router.patch("/{name}/versions/{version}", dependencies=[needs(Action.REGISTER)])
async def change_model(name: str, version: int, body: ModelChanges, context: ContextOf) -> ModelView:
    """Change a version's description, tags, stage and aliases."""
    audit.about(f"model {name}:{version}", "changed")
    return await context.database.write(lambda transaction: registry.change(transaction, name, version, body))


@router.delete("/{name}", status_code=204, dependencies=[needs(Action.REGISTER)])
@router.delete("/{name}/versions/{version}", status_code=204, dependencies=[needs(Action.REGISTER)])
async def delete_model(name: str, context: ContextOf, version: int | None = None) -> Response:
    """Forget a version, or a model with all of its versions; the runs that they came from stay."""
    audit.about(f"model {name}:{version}" if version else f"model {name}", "deleted")
    gone = await context.database.write(lambda transaction: registry.remove(transaction, name, version))
    await in_thread(lambda: content.discard(context, gone))
    return Response(status_code=204)


@router.get("/{name}/versions/{version}/files", dependencies=[needs(Action.READ_DATA)])
@router.get("/{name}/versions/{version}/files/{path:path}", dependencies=[needs(Action.READ_DATA)])
async def read_model(name: str, version: int, request: Request, context: ContextOf, path: str = "") -> Response:
    """One file of a version; the model itself where that is a file."""
    inner = safe_path(path)
    datastore, at, size = await in_thread(lambda: _located(context, name, version, inner))
    return ranges.answer(request, size, lambda offset, length: datastore.read(at, offset, length))


def _settled(context: Context, model: ModelView) -> ModelView:
    """With its files in their own folder, if it has files already: a run may still be writing them."""
    try:
        return content.settle(context, model)
    except errors.NotFound:
        return model


def _located(context: Context, name: str, version: int, path: str) -> tuple[Datastore, str, int]:
    found = context.database.read_now(lambda c: registry.find_model(c, name, version))
    model = content.settle(context, found)
    known = {entry.path: entry for entry in context.database.read_now(lambda c: registry.files(c, model))}
    if path not in known:
        raise errors.NotFound(f"the model {name}:{version} has no file {path!r}", "`muster model show` lists them.")
    spec, folder = context.database.read_now(
        lambda c: asset_content.store_of(context, c, parse_address(model.address or ""))
    )
    return datastores.open_store(context, spec), joined(folder, path), known[path].size
