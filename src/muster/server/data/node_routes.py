"""Requests of agents for the data of their attempts: lists of inputs, fresh grants, hashes, names of outputs."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import Connection

from muster.server.data import assets, grants, mounts, peers
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.server.environments import records
from muster.server.http.dependencies import ContextOf, NodeOf
from muster.server.http.uploads import in_thread
from muster.server.runs import outputs
from muster.wire.data.access import FileList
from muster.wire.environments import AgreedVersions
from muster.wire.node.mounts import MountOrders
from muster.wire.node.peers import BlocksAnswer, BlocksRequest, PeerHello, PeerIdentity
from muster.wire.node.requests import (
    EnvironmentReport,
    FreshGrants,
    GrantsRequest,
    HashesPinned,
    HashesReport,
    OutputClaim,
    OutputNames,
)

router = APIRouter(prefix="/agents/{node}", tags=["agents"])


@router.post("/environment")
async def agree(node: NodeOf, body: EnvironmentReport, context: ContextOf) -> AgreedVersions:
    """The versions that all nodes of a gang keep to; the first node to report settles them."""

    def work(transaction: Transaction) -> AgreedVersions:
        grants.attempt_of(context, transaction.connection, node, body.run, body.attempt)
        row = find_run(transaction.connection, body.run)
        return records.agree(transaction, row.id, row.environment, body.environment)

    return await context.database.write(work)


@router.get("/manifest")
async def manifest(node: NodeOf, run: str, attempt: int, name: str, context: ContextOf) -> FileList:
    """The files of an input, with a token for each where its store signs file by file."""

    def look(connection: Connection) -> FileList:
        holder, spec = grants.attempt_of(context, connection, node, run, attempt)
        return grants.manifest(context, connection, grants.input_of(spec, name), holder)

    # The storage is listed meanwhile, which may take long.
    async with context.data.storage_calls:
        return await in_thread(lambda: context.database.read_now(look))


@router.get("/mounts")
async def mounted(node: NodeOf, run: str, attempt: int, context: ContextOf) -> MountOrders:
    """What is mounted for an attempt, with fresh credentials."""
    # A storage may be listed meanwhile, which may take long.
    async with context.data.storage_calls:
        return await in_thread(
            lambda: context.database.read_now(lambda c: mounts.orders(context, c, node, run, attempt))
        )


@router.post("/grants")
async def renew(node: NodeOf, body: GrantsRequest, context: ContextOf) -> FreshGrants:
    """Fresh accesses for an attempt that is not over, and tokens for files that it is about to write."""

    def look(connection: Connection) -> FreshGrants:
        holder, spec = grants.attempt_of(context, connection, node, body.run, body.attempt)
        return grants.renew(context, connection, spec, holder, body.paths)

    return await context.database.read(look)


@router.post("/hashes")
async def hashes(node: NodeOf, body: HashesReport, context: ContextOf) -> HashesPinned:
    """The hashes that a first download of a data asset found; later ones must have the same."""

    def work(transaction: Transaction) -> HashesPinned:
        _, spec = grants.attempt_of(context, transaction.connection, node, body.run, body.attempt)
        return HashesPinned(assets.pin_input(transaction, grants.input_of(spec, body.name).path or "", body))

    return await context.database.write(work)


@router.post("/peer")
async def introduce(node: NodeOf, body: PeerHello, context: ContextOf) -> PeerIdentity:
    """The certificate and keys with which a node serves blocks of staged data."""
    return peers.introduce(context, node, body)


@router.post("/blocks")
async def blocks(node: NodeOf, body: BlocksRequest, context: ContextOf) -> BlocksAnswer:
    """A node's progress with an input; returns who else has what of it, and what to read from the source."""
    place = await context.database.read(lambda connection: peers.place_of(context, connection, node, body))
    return peers.report(context, node, place, body)


@router.post("/outputs")
async def claim(node: NodeOf, body: OutputClaim, context: ContextOf) -> OutputNames:
    """Whether the gang has succeeded; then the name that each file of an output gets."""
    return await context.database.write(lambda transaction: outputs.claim(transaction, node, body))
