"""File servers: create, fill, resize, restart, delete; reports of their processes and the orders for them."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from muster import errors
from muster.control.access import Action
from muster.server.database.connection import Transaction
from muster.server.fileservers import keeping, records
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import LogToRun, needs
from muster.server.http.paging import PageOf
from muster.server.http.uploads import in_thread
from muster.server.people import audit
from muster.server.runs import changes
from muster.wire.data.fileservers import (
    FileServerChanges,
    FileServerOrders,
    FileServerReport,
    FileServerView,
    FillSource,
    NewFileServer,
    NewFill,
)

router = APIRouter(tags=["file servers"])

_MANAGES = needs(Action.MANAGE_CLUSTER)


@router.get("/fileservers", dependencies=[needs(Action.READ)])
async def list_file_servers(context: ContextOf, page: PageOf) -> list[FileServerView]:
    """All file servers by name, with what they hold."""

    def look(connection: Connection) -> list[FileServerView]:
        return [keeping.view(context, connection, row) for row in records.listed(connection)]

    return page.of(await context.database.read(look), lambda item: (item.name,))


@router.post("/fileservers", status_code=201, dependencies=[_MANAGES])
async def create_file_server(body: NewFileServer, context: ContextOf, caller: CallerOf) -> FileServerView:
    """Create a file server: one node of a cluster that holds data and serves them over NFS."""
    audit.about(f"file server {body.name}", "created")
    await context.database.write(lambda t: records.add(context, t, body, caller))
    return await show_file_server(body.name, context)


@router.get("/fileservers/{name}", dependencies=[needs(Action.READ)])
async def show_file_server(name: str, context: ContextOf) -> FileServerView:
    """One file server with what it holds and the progress of its fills."""
    return await context.database.read(lambda c: keeping.view(context, c, records.find(c, name)))


@router.patch("/fileservers/{name}", dependencies=[_MANAGES])
async def resize_file_server(name: str, body: FileServerChanges, context: ContextOf) -> FileServerView:
    """Change how much a file server may hold."""
    audit.about(f"file server {name}", "resized")
    await context.database.write(lambda t: records.resize(context, t, name, body))
    return await show_file_server(name, context)


@router.post("/fileservers/{name}/fills", dependencies=[needs(Action.WRITE_DATA)])
async def fill_file_server(name: str, body: NewFill, context: ContextOf, caller: CallerOf) -> FileServerView:
    """Have a file server copy a folder of a datastore or a data asset."""
    audit.about(f"file server {name}", f"filled from {body.source}")
    await context.database.write(lambda t: records.add_fill(context, t, name, body, caller))
    return await show_file_server(name, context)


@router.post("/fileservers/{name}/restart", dependencies=[_MANAGES])
async def restart_file_server(name: str, context: ContextOf, caller: CallerOf) -> FileServerView:
    """Start a file server that failed or was stopped; a running one is restarted."""
    audit.about(f"file server {name}", "restarted")

    def work(transaction: Transaction) -> None:
        row = records.find(transaction, name)
        if row.removes:
            raise errors.Conflict(f"the file server {name} is being deleted")
        if row.run_id is not None and not keeping.kept(context, transaction.connection, row).is_over:
            changes.cancel(context, transaction, [row.run_id], False, caller.subject)
        keeping.start(context, transaction, row)

    await context.database.write(work)
    return await show_file_server(name, context)


@router.delete("/fileservers/{name}", status_code=204, dependencies=[_MANAGES])
async def delete_file_server(name: str, context: ContextOf, caller: CallerOf, keep_data: bool = False) -> Response:
    """Delete a file server with its data; with `keep_data` the node's folder stays."""
    audit.about(f"file server {name}", "deleted")

    def work(transaction: Transaction) -> None:
        row = records.begin_removal(context, transaction, name, caller)
        standing = keeping.kept(context, transaction.connection, row)
        if not standing.is_over and (keep_data or not standing.is_up):
            # There is no process to remove the data, or the data should stay.
            changes.cancel(context, transaction, [row.run_id], False, caller.subject)

    await context.database.write(work)
    return Response(status_code=204)


@router.post("/runs/{ref}/fileserver")
async def report(run: LogToRun, body: FileServerReport, context: ContextOf) -> FileServerOrders:
    """Report of the process of a file server; the answer holds its orders."""
    news = await context.database.read(lambda c: keeping.is_news(c, run, body))
    if news:
        await context.database.write(lambda t: keeping.take(context, t, run, body))
    # Recorded last: a client that sees that it serves also finds its address.
    context.fileservers.note(run, body)
    return await context.database.read(lambda c: keeping.orders(context, c, run, body.attempt))


@router.get("/runs/{ref}/fileserver/fills/{fill}")
async def source(run: LogToRun, fill: int, attempt: int, context: ContextOf) -> FillSource:
    """How to reach a fill's source, with fresh credentials."""

    def look(connection: Connection) -> FillSource:
        return FillSource(keeping.source_of(context, connection, run, attempt, fill))

    # The storage may be listed meanwhile, which can take long.
    async with context.data.storage_calls:
        return await in_thread(lambda: context.database.read_now(look))
