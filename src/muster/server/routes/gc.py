"""Retention: what may go, and its removal."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from muster.server import gc
from muster.server.dependencies import ContextOf

router = APIRouter(tags=["workspace"])


@router.post("/gc")
async def collect(policy: gc.Policy, context: ContextOf) -> dict[str, Any]:
    """Remove what nothing refers to; with `dry_run` only tell what that is."""
    return await asyncio.to_thread(gc.collect, context, policy)
