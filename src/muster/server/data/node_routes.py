"""What agents ask for the data of their attempts: lists of inputs, fresh grants, hashes that they found."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from sqlalchemy import Connection

from muster.server.data import assets, grants
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.server.environments import records
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.nodes.agent_routes import own
from muster.wire.access import FileList
from muster.wire.environments import AgreedVersions
from muster.wire.node.requests import EnvironmentReport, FreshGrants, GrantsRequest, HashesPinned, HashesReport

router = APIRouter(prefix="/agents", tags=["agents"])


@router.post("/{node}/environment")
async def agree(node: str, body: EnvironmentReport, context: ContextOf, caller: CallerOf) -> AgreedVersions:
    """The versions that a gang's nodes keep to; a node that comes with the first settles them."""
    own(caller, node)

    def work(transaction: Transaction) -> AgreedVersions:
        grants.attempt_of(context, transaction.connection, node, body.run, body.attempt)
        row = find_run(transaction.connection, body.run)
        return records.agree(transaction, row.id, row.environment, body.environment)

    return await context.database.write(work)


@router.get("/{node}/manifest")
async def manifest(node: str, run: str, attempt: int, name: str, context: ContextOf, caller: CallerOf) -> FileList:
    """What an input holds, with a token for each file where its store signs file by file."""
    own(caller, node)

    def look(connection: Connection) -> FileList:
        holder, spec = grants.attempt_of(context, connection, node, run, attempt)
        return grants.manifest(context, connection, grants.input_of(spec, name), holder)

    return await asyncio.to_thread(context.database.read_now, look)


@router.post("/{node}/grants")
async def renew(node: str, body: GrantsRequest, context: ContextOf, caller: CallerOf) -> FreshGrants:
    """Fresh accesses for an attempt that is not over, and tokens for files that it is about to write."""
    own(caller, node)
    context.hub.heard(node)

    def look(connection: Connection) -> FreshGrants:
        holder, spec = grants.attempt_of(context, connection, node, body.run, body.attempt)
        return grants.renew(context, connection, spec, holder, body.paths)

    return await context.database.read(look)


@router.post("/{node}/hashes")
async def hashes(node: str, body: HashesReport, context: ContextOf, caller: CallerOf) -> HashesPinned:
    """What a first download of a data asset found; it is held to that from now on."""
    own(caller, node)

    def work(transaction: Transaction) -> HashesPinned:
        _, spec = grants.attempt_of(context, transaction.connection, node, body.run, body.attempt)
        return HashesPinned(assets.pin_input(transaction, grants.input_of(spec, body.name).path or "", body))

    return await context.database.write(work)
