"""Encryption at rest: which key, and another one."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from muster import errors
from muster.server.data import encryption
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.wire.encryption import EncryptionView, NewKey, RotatedKey

router = APIRouter(prefix="/encryption", tags=["workspace"])


@router.get("")
async def show(context: ContextOf) -> EncryptionView:
    """Whether the store is encrypted, with which key, and where the key comes from."""
    return encryption.describe(context)


@router.post("/rotate")
async def rotate(body: NewKey, context: ContextOf, caller: CallerOf) -> RotatedKey:
    """Wrap the keys of all files in a new key."""
    if caller.role != "admin":
        raise errors.AccessDenied("only an administrator may change the workspace's key")
    return await asyncio.to_thread(encryption.rotate, context, body)
