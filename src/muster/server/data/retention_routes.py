"""Retention: what may go, and its removal."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from muster.server.data import retention
from muster.server.http.dependencies import ContextOf
from muster.wire.retention import RetentionPolicy, RetentionReport

router = APIRouter(tags=["workspace"])


@router.post("/gc")
async def collect(policy: RetentionPolicy, context: ContextOf) -> RetentionReport:
    """Remove what nothing refers to; with `dry_run` only tell what that is."""
    return await asyncio.to_thread(retention.collect, context, policy)
