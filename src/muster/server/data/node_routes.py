"""What agents ask for the data of their attempts: lists of inputs, fresh grants, hashes that they found."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy import Connection, select

from muster import errors
from muster.job.parts import Input
from muster.job.spec import JobSpec
from muster.server.data import assets, grants
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.server.environments import records
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.nodes.agent_routes import own
from muster.storage.access import FileEntry
from muster.storage.addresses import parse_address
from muster.wire import states

router = APIRouter(prefix="/agents", tags=["agents"])


class GrantsBody(BaseModel):
    run: str
    attempt: int
    paths: dict[str, list[str]] = {}


class HashesBody(BaseModel):
    run: str
    attempt: int
    name: str
    files: list[dict[str, Any]]


class Versions(BaseModel):
    """What a node came to."""

    key: str
    python: str
    lock: list[str]
    platform: str
    indexes: list[str] = []
    image: str | None = None


class EnvironmentBody(BaseModel):
    run: str
    attempt: int
    environment: Versions | None = None


@router.post("/{node}/environment")
async def agree(node: str, body: EnvironmentBody, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """The versions that a gang's nodes keep to; a node that comes with the first settles them."""
    own(caller, node)

    def work(transaction: Transaction) -> dict[str, Any]:
        _attempt(transaction.connection, node, body.run, body.attempt)
        row = find_run(transaction.connection, body.run)
        told = body.environment.model_dump(exclude_none=True) if body.environment else None
        return records.agree(transaction, row.id, row.environment, told)

    return await context.database.write(work)


@router.get("/{node}/manifest")
async def manifest(
    node: str, run: str, attempt: int, name: str, context: ContextOf, caller: CallerOf
) -> dict[str, Any]:
    """What an input holds, with a token for each file where its store signs file by file."""
    own(caller, node)

    def work() -> list[dict[str, Any]]:
        def look(connection: Connection) -> list[FileEntry]:
            holder, spec = _attempt(connection, node, run, attempt)
            return grants.manifest(context, connection, _input(spec, name), holder)

        return [asdict(entry) for entry in context.database.read_now(look)]

    return {"files": await asyncio.to_thread(work)}


@router.post("/{node}/grants")
async def renew(node: str, body: GrantsBody, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Fresh accesses for an attempt that is not over, and tokens for files that it is about to write."""
    own(caller, node)
    context.hub.heard(node)

    def look(connection: Connection) -> dict[str, Any]:
        holder, spec = _attempt(connection, node, body.run, body.attempt)
        return grants.renew(context, connection, spec, holder, body.paths)

    return await context.database.read(look)


@router.post("/{node}/hashes")
async def hashes(node: str, body: HashesBody, context: ContextOf, caller: CallerOf) -> dict[str, int]:
    """What a first download of a data asset found; it is held to that from now on."""
    own(caller, node)
    _, spec = await context.database.read(lambda c: _attempt(c, node, body.run, body.attempt))
    location = parse_address(_input(spec, body.name).path or "")
    if location.kind != "asset" or location.version is None:
        raise errors.JobError(f"the input {body.name} is no data asset", "Only assets have a manifest that is kept.")
    name, version = location.store, location.version
    found = [FileEntry(str(item["path"]), int(item["size"]), str(item["sha256"])) for item in body.files]
    return {"pinned": await context.database.write(lambda t: assets.pin(t, name, version, found))}


def _attempt(connection: Connection, node: str, run: str, attempt: int) -> tuple[grants.Holder, JobSpec]:
    """The attempt's job, if it is open on the node."""
    placements, clusters = tables.placements, tables.clusters
    row = connection.execute(
        select(tables.runs.c.spec, placements.c.phase, clusters.c.engine)
        .join(placements, placements.c.run_id == tables.runs.c.id)
        .outerjoin(clusters, clusters.c.name == placements.c.cluster)
        .where(tables.runs.c.id == run, placements.c.number == attempt, placements.c.node == node)
    ).first()
    if row is None or row.phase not in states.IS_OPEN:
        raise errors.AccessDenied(f"attempt {attempt} of {run} is not on {node}, or it is over")
    return grants.Holder(run, attempt, row.engine == "local"), JobSpec.model_validate(row.spec, strict=False)


def _input(spec: JobSpec, name: str) -> Input:
    item = spec.inputs.get(name)
    if not isinstance(item, Input) or item.path is None:
        raise errors.NotFound(f"the run has no input {name!r} that is a file or folder")
    return item
