"""Encryption at rest: which key, and another one."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from muster import errors
from muster.server.data import encryption
from muster.server.http.dependencies import CallerOf, ContextOf

router = APIRouter(prefix="/encryption", tags=["workspace"])


class NewKey(BaseModel):
    key_file: str | None = None
    key_env: str | None = None
    key_command: str | None = None


@router.get("")
async def show(context: ContextOf) -> dict[str, Any]:
    """Whether the store is encrypted, with which key, and where the key comes from."""
    return encryption.describe(context)


@router.post("/rotate")
async def rotate(body: NewKey, context: ContextOf, caller: CallerOf) -> dict[str, Any]:
    """Wrap the keys of all files in a new key."""
    if caller.role != "admin":
        raise errors.AccessDenied("only an administrator may change the workspace's key")
    count = await asyncio.to_thread(encryption.rotate, context, body.model_dump(exclude_none=True))
    return {**encryption.describe(context), "files": count}
