"""Bytes in datastores: for users by their token, for nodes and guests by a grant."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Request, Response

from muster import errors
from muster.control.access import Action, Caller
from muster.host.hashing import measure_pieces
from muster.server.context import Context
from muster.server.data import asset_content, asset_life, assets, datastores, grants, own_access
from muster.server.http import ranges
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs, run_for
from muster.server.http.paging import FilesPageOf, Page, PageOf
from muster.server.http.uploads import body_pieces, in_thread
from muster.server.people import audit
from muster.storage import grants as signed
from muster.storage.addresses import safe_path
from muster.storage.connectors.datastore import Datastore
from muster.wire.codec import to_json
from muster.wire.data.access import (
    HASH_HEADER,
    READ,
    WRITE,
    FileBrief,
    FileList,
    GrantView,
    IssuedGrant,
    NewAccess,
    NewGrant,
    OpenedAccess,
    Scope,
)
from muster.wire.data.assets import AssetChange, AssetUses, AssetView, NewAsset
from muster.wire.data.datastores import DatastoreTest, DatastoreTestResult, DatastoreView, NewDatastore

T = TypeVar("T")

ReadRunData = Annotated[str, run_for(Action.READ_DATA)]

_NAMED = 20
"""The most links out of a datastore that are named."""
router = APIRouter(tags=["data"])


@router.get("/datastores", dependencies=[needs(Action.READ)])
async def list_datastores(context: ContextOf, page: PageOf) -> list[DatastoreView]:
    """Named storage, without credentials; the workspace's own first."""
    found = await context.database.read(lambda c: datastores.views(context, c))
    return page.of(found, lambda item: (item.created_at is not None, item.name))


@router.post("/datastores", status_code=201, dependencies=[needs(Action.CREATE_DATASTORE)])
async def create_datastore(
    body: NewDatastore, context: ContextOf, caller: CallerOf, replace: bool = False
) -> DatastoreView:
    """Give storage a name; with `replace` also one that is taken, by its owner."""
    audit.about(body.name, body.kind)
    if body.create:
        await _slowly(context, datastores.create_place, context, body, caller)
    return await context.database.write(lambda t: datastores.add(context, t, body, replace, caller))


@router.get("/datastores/{name}", dependencies=[needs(Action.READ)])
async def show_datastore(name: str, context: ContextOf) -> DatastoreView:
    """One datastore, without its credential."""
    return await context.database.read(lambda c: datastores.find_view(context, c, name))


@router.post("/datastores/{name}/test", dependencies=[needs(Action.USE_DATASTORE)])
async def test_datastore(name: str, body: DatastoreTest, context: ContextOf) -> DatastoreTestResult:
    """Use a datastore as a job would."""
    spec = await context.database.read(lambda c: datastores.find(context, c, name))
    return DatastoreTestResult(await _slowly(context, datastores.try_out, context, spec, body.write))


@router.delete("/datastores/{name}", status_code=204, dependencies=[needs(Action.CHANGE_DATASTORE, asks_owner=True)])
async def delete_datastore(name: str, context: ContextOf, caller: CallerOf) -> Response:
    """Forget a datastore that nothing refers to; its files stay."""
    audit.about(detail="delete")
    await context.database.write(lambda t: datastores.remove(context, t, name, caller))
    return Response(status_code=204)


@router.get("/grants", dependencies=[needs(Action.READ)])
async def list_grants(context: ContextOf, page: PageOf) -> list[GrantView]:
    """Grants of people that still hold; those of runs come and go with their attempts."""
    found = await context.database.read(grants.standing)
    return page.of(found, lambda item: (item.expires_at, item.id))


@router.post("/grants", status_code=201, dependencies=[needs(Action.CREATE_GRANT)])
async def create_grant(body: NewGrant, context: ContextOf, caller: CallerOf) -> IssuedGrant:
    """A signed, expiring grant to one file or folder; its token is seen only now."""
    audit.about(body.address, f"{body.scope}, for {body.lifetime_s:g} s")
    return await context.database.write(lambda t: grants.issue(context, t, body, caller.subject))


@router.delete("/grants/{grant_id}", status_code=204, dependencies=[needs(Action.REVOKE_GRANT, asks_owner=True)])
async def revoke_grant(grant_id: str, context: ContextOf, caller: CallerOf) -> Response:
    """Revoke a grant at once."""
    await context.database.write(lambda t: grants.revoke(context, t, grant_id, caller))
    return Response(status_code=204)


@router.get("/assets", dependencies=[needs(Action.READ)])
async def list_assets(
    context: ContextOf, page: PageOf, name: str | None = None, archived: bool = False
) -> list[AssetView]:
    """Data assets, the newest version of each first; with `archived` also those that are."""
    found = await context.database.read(lambda c: assets.listing(c, name, archived))
    return page.of(found, lambda item: (item.name, -item.number))


@router.post("/assets", status_code=201, dependencies=[needs(Action.REGISTER)])
async def create_asset(body: NewAsset, context: ContextOf, caller: CallerOf) -> AssetView:
    """A new version of a data asset; without `files` the server lists the files there."""
    audit.about(f"data asset {body.name}", body.address)
    kind, found = await _slowly(context, asset_content.measure, context, body)
    made = await context.database.write(lambda t: assets.create(t, body, kind, found, caller.subject))
    await _slowly(context, asset_content.protect, context, made.address, found)
    return made


@router.get("/assets/{name}", dependencies=[needs(Action.READ)])
async def show_asset(name: str, context: ContextOf, version: str | None = None) -> AssetView:
    """One version of a data asset, the newest unless one is named."""
    return await context.database.read(lambda c: assets.find(c, name, version))


@router.get("/assets/{name}/manifest", dependencies=[needs(Action.READ)])
async def asset_manifest(name: str, context: ContextOf, page: FilesPageOf, version: str | None = None) -> FileList:
    """The files of a data asset with their sizes and hashes."""
    found = await context.database.read(lambda c: assets.files(c, assets.find(c, name, version)))
    return FileList(tuple(page.of(found, lambda item: (item.path,))))


@router.patch("/assets/{name}/versions/{version}", dependencies=[needs(Action.REGISTER)])
async def change_asset(name: str, version: str, body: AssetChange, context: ContextOf) -> AssetView:
    """Archive a version, or show it again; its content never changes."""
    audit.about(f"data asset {name}:{version}", "archive" if body.archived else "unarchive")
    return await context.database.write(lambda t: asset_life.archive(t, name, version, body.archived))


@router.delete("/assets/{name}/versions/{version}", dependencies=[needs(Action.DELETE_DATA)])
async def delete_asset(name: str, version: str, context: ContextOf) -> AssetUses:
    """Forget a version that no active run uses; its number is never used again."""
    audit.about(f"data asset {name}:{version}", "delete")
    return await context.database.write(lambda t: asset_life.remove(t, name, version))


@router.get("/assets/{name}/versions/{version}/uses", dependencies=[needs(Action.READ)])
async def asset_uses(name: str, version: str, context: ContextOf) -> AssetUses:
    """The runs that have a version as an input."""
    return await context.database.read(lambda c: asset_life.uses(c, assets.find(c, name, version)))


@router.get("/assets/{name}/versions/{version}/files", dependencies=[needs(Action.READ_DATA)])
@router.get("/assets/{name}/versions/{version}/files/{path:path}", dependencies=[needs(Action.READ_DATA)])
async def read_asset(name: str, version: str, request: Request, context: ContextOf, path: str = "") -> Response:
    """One file of a data asset, wherever it lies; without a path the asset itself, if it is one file."""
    datastore, inner, size = await _slowly(context, asset_content.locate, context, name, version, safe_path(path))
    return ranges.answer(request, size, lambda offset, length: datastore.read(inner, offset, length))


@router.get("/data/{store}", response_model=FileList, dependencies=[needs(Action.READ_DATA)])
@router.get("/data/{store}/{path:path}", response_model=FileList, dependencies=[needs(Action.READ_DATA)])
@router.head("/data/{store}/{path:path}", include_in_schema=False, dependencies=[needs(Action.READ_DATA)])
async def read_data(store: str, request: Request, context: ContextOf, page: FilesPageOf, path: str = "") -> Response:
    """A file of a datastore, or a range of it; with `list=1` the files below a folder."""
    inner = safe_path(path)
    datastore = await _admitted(context, request, store, inner, READ)
    return await _read(context, request, datastore, store, inner, page)


@router.get("/runs/{ref}/data", response_model=FileList)
async def read_run_data(
    run_id: ReadRunData, address: str, request: Request, context: ContextOf, page: FilesPageOf
) -> Response:
    """A file below an input or output of a run, or a range of it; with `list=1` the files below a folder."""
    spec, inner, granted = await context.database.read(lambda c: own_access.of_run(context, c, run_id, address))
    datastore = await _slowly(context, datastores.open_store, context, spec)
    return await _read(context, request, datastore.within(granted), spec.name, inner, page)


async def _read(
    context: Context, request: Request, datastore: Datastore, store: str, inner: str, page: Page
) -> Response:
    if request.query_params.get("list"):
        only_file = request.query_params.get("only") == "file"
        listed = await _slowly(context, _listed, datastore, inner, only_file, page)
        return Response(listed, headers=dict(page.response.headers), media_type="application/json")
    entry = await _slowly(context, datastore.entry, inner) if inner else None
    if entry is None:
        raise errors.NotFound(f"the datastore {store} has no file {inner!r}", "`?list=1` lists what is below a folder.")

    def pieces(offset: int, length: int) -> Iterator[bytes]:
        return datastore.read(inner, offset, length) if length > 0 else iter(())

    answer = ranges.answer(request, entry.size, pieces, entry.etag)
    if request.method == "HEAD" and request.query_params.get("hash"):
        found = await _slowly(context, lambda: measure_pieces(datastore.read(inner)))
        answer.headers[HASH_HEADER] = found.sha256
    return answer


@router.put("/data/{store}/{path:path}", status_code=201, dependencies=[needs(Action.WRITE_DATA)])
async def write_data(
    store: str, path: str, request: Request, context: ContextOf, sha256: str | None = None
) -> FileBrief:
    """Put a file into a datastore, whole or not at all; with `If-None-Match: *` only where the name is free."""
    inner = safe_path(path)
    datastore = await _admitted(context, request, store, inner, WRITE)
    fresh = request.headers.get("if-none-match") == "*"
    size = await body_pieces(request, lambda pieces: datastore.write(inner, pieces, sha256, fresh))
    return FileBrief(inner, size)


@router.delete("/data/{store}/{path:path}", status_code=204, dependencies=[needs(Action.DELETE_DATA)])
async def delete_data(store: str, path: str, request: Request, context: ContextOf) -> Response:
    """Remove one file of a datastore; files of data assets and models are refused."""
    inner = safe_path(path)
    datastore = await _admitted(context, request, store, inner, WRITE)
    await _slowly(context, datastore.remove, inner)
    return Response(status_code=204)


@router.post("/access/read", dependencies=[needs(Action.READ_DATA)])
async def open_to_read(body: NewAccess, request: Request, context: ContextOf, caller: CallerOf) -> OpenedAccess:
    """The caller's own access to read files of a folder: directly from the storage where possible."""
    return await _opened(context, request, body, READ, caller)


@router.post("/access/write", dependencies=[needs(Action.WRITE_DATA)])
async def open_to_write(body: NewAccess, request: Request, context: ContextOf, caller: CallerOf) -> OpenedAccess:
    """The same to write; files of data assets and models are refused."""
    audit.about(body.address, f"{len(body.files)} files")
    return await _opened(context, request, body, WRITE, caller)


@router.post("/access/delete", dependencies=[needs(Action.DELETE_DATA)])
async def open_to_delete(body: NewAccess, request: Request, context: ContextOf, caller: CallerOf) -> OpenedAccess:
    """The same to remove files."""
    audit.about(body.address, f"{len(body.files)} files")
    return await _opened(context, request, body, WRITE, caller)


async def _opened(context: Context, request: Request, body: NewAccess, scope: Scope, caller: Caller) -> OpenedAccess:
    # A Unix socket has no address: its other end is on this machine.
    same_machine = request.client is None or not request.client.host
    return await context.database.read(lambda c: own_access.opened(context, c, body, scope, caller, same_machine))


async def _admitted(context: Context, request: Request, store: str, path: str, scope: Scope) -> Datastore:
    """The open datastore, if the caller may use it in this way."""
    grant = cast(signed.Grant | None, getattr(request.state, "grant", None))
    if grant is not None:
        signed.check(grant, store=store, path=path, scope=scope)
    if scope == WRITE:
        await context.database.read(lambda c: assets.refuse_kept(c, store, path))
    spec = await context.database.read(lambda c: datastores.find(context, c, store))
    datastore = await _slowly(context, datastores.open_store, context, spec)
    return datastore if grant is None else datastore.within(grant.path)


async def _slowly(context: Context, work: Callable[..., T], *arguments: object) -> T:
    """Call a storage that may be far away or stuck: a limited number at once, in threads that nothing else needs."""
    async with context.data.storage_calls:
        return await in_thread(lambda: work(*arguments))


def _listed(datastore: Datastore, path: str, only_file: bool, page: Page) -> bytes:
    """The files below a folder; a path that is a file lists only that file."""
    found = () if only_file else tuple(datastore.entries(path))
    one = datastore.entry(path) if path and not found else None
    chosen = page.of(found, lambda item: (item.path,)) if one is None else (one,)
    return json.dumps(to_json(FileList(tuple(chosen), tuple(datastore.left_out[:_NAMED])))).encode()
