"""The workspace itself: health, plans, shutdown, encryption at rest, retention."""

from __future__ import annotations

import asyncio
import os

from fastapi import APIRouter, Request

from muster import errors
from muster.control.access import Action
from muster.defaults import PROTOCOL_VERSION
from muster.server.data import encryption, retention
from muster.server.database.records import active_run_count, active_runs
from muster.server.http.dependencies import ContextOf
from muster.server.http.needs import needs
from muster.server.http.uploads import in_thread
from muster.server.people import audit
from muster.server.runs import submission
from muster.version import VERSION
from muster.wire.encryption import EncryptionView, NewKey, RotatedKey, SecretsResealed
from muster.wire.node.plan import PlanRequest, PlanView
from muster.wire.retention import RetentionPolicy, RetentionReport
from muster.wire.workspace import Health, Shutdown, ShuttingDown

router = APIRouter(tags=["workspace"])


@router.get("/health")
async def health(context: ContextOf) -> Health:
    """Whether the server is well, and what it is."""
    active = await context.database.read(active_run_count)
    agents = tuple(sorted(context.hub.contacts))
    trouble = context.disk.full or context.missing_runs
    return Health(
        VERSION,
        PROTOCOL_VERSION,
        context.workspace_id,
        os.getpid(),
        active,
        agents,
        trouble,
    )


@router.post("/plan", dependencies=[needs(Action.SUBMIT)])
async def make_plan(body: PlanRequest, context: ContextOf) -> PlanView:
    """The plan of a job on this workspace's nodes, without running it."""
    # It lists storages, which may take long.
    async with context.data.storage_calls:
        return await in_thread(lambda: context.database.read_now(lambda c: submission.preview(context, c, body)))


@router.post("/shutdown", status_code=202, dependencies=[needs(Action.MANAGE_WORKSPACE)])
async def shutdown(body: Shutdown, request: Request, context: ContextOf) -> ShuttingDown:
    """End the server when it is idle; with `force` in any case (runs go on and are taken up again)."""
    active = await context.database.read(active_run_count)
    if active and not body.force:
        names = await context.database.read(active_runs)
        names_text = ", ".join(names) + (f" and {active - len(names)} more" if active > len(names) else "")
        raise errors.Conflict(
            f"1 run is active: {names_text}" if active == 1 else f"{active} runs are active: {names_text}",
            "Wait for them, cancel them, or use --force: they go on without the server. "
            "Models that are served and file servers go on until they are cancelled or deleted.",
        )
    audit.about("server", "ended by force" if body.force else "ended")
    await context.database.write(lambda _: None)
    request.app.state.stop(leave_agents=bool(active))
    return ShuttingDown(True, active)


@router.get("/encryption", dependencies=[needs(Action.MANAGE_WORKSPACE)])
async def show_encryption(context: ContextOf) -> EncryptionView:
    """Whether the store is encrypted, with which key, and where the key comes from."""
    return encryption.describe(context)


@router.post("/encryption/rotate", dependencies=[needs(Action.MANAGE_WORKSPACE)])
async def rotate_key(body: NewKey, context: ContextOf) -> RotatedKey:
    """Wrap the keys of all files in a new key."""
    audit.about("the store's key")
    return await asyncio.to_thread(encryption.rotate, context, body)


@router.post("/encryption/rotate-secrets", dependencies=[needs(Action.MANAGE_WORKSPACE)])
async def rotate_secrets_key(context: ContextOf) -> SecretsResealed:
    """Seal secrets and credentials of datastores with a fresh key."""
    audit.about("the key of secrets")
    return await asyncio.to_thread(encryption.rotate_secrets, context)


@router.post("/gc", dependencies=[needs(Action.MANAGE_WORKSPACE)])
async def collect(policy: RetentionPolicy, context: ContextOf) -> RetentionReport:
    """Remove what nothing refers to; with `dry_run` only tell what that is."""
    audit.about("unused files", "only shown" if policy.dry_run else "removed")
    return await asyncio.to_thread(retention.collect, context, policy)
