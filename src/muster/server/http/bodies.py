"""Request bodies in JSON: bounded, and free of what the database or a parser would reject."""

from __future__ import annotations

import asyncio
import re

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from muster import errors
from muster.wire.codec import Json
from muster.wire.text import is_encodable

MOST_BYTES = 256 << 20
"""A manifest of a million files takes half of that."""
_DEPTH = 64
_WHOLE = 1 << 64
_LARGE_BYTES = 1 << 20
_SHORT_BYTES = 1 << 16
_SUSPECT = re.compile(rb"\\u|[0-9]{19}|[^\t\n\r -\x7e]")
"""What may be half of a surrogate pair, an integer beyond 64 bits, or invalid text."""


def bounded(receive: Receive, most_bytes: int = MOST_BYTES) -> Receive:
    """The same body, refused once it is longer than `most_bytes`."""
    left = most_bytes

    async def receive_some() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"the body is longer than {most_bytes:,} bytes")
        return message

    return receive_some


async def checked_body(request: Request) -> None:
    """Refuse a JSON body that is nested too deeply, or holds numbers or text that cannot be kept."""
    route = request.scope.get("route")
    if getattr(route, "body_field", None) is None or not is_json(request.headers.get("content-type", "")):
        return
    body = await request.body()
    size = len(body)
    if not size or _is_plain(body):
        return
    given = await request.json()
    problem = await asyncio.to_thread(_problem, given) if size > _LARGE_BYTES else _problem(given)
    if problem:
        raise errors.JobError(f"the request is not valid: it {problem}", "Remove it.")


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _is_plain(body: bytes) -> bool:
    """Whether a quick scan shows that nothing is wrong with it, as with almost all bodies."""
    return len(body) <= _SHORT_BYTES and body.count(b"{") + body.count(b"[") < _DEPTH and not _SUSPECT.search(body)


def _problem(given: Json) -> str:
    """What is wrong with a value, as the end of a sentence; empty: nothing."""
    found: list[tuple[Json, int]] = [(given, 0)]
    while found:
        value, depth = found.pop()
        if isinstance(value, str):
            if "\0" in value or not is_encodable(value):
                return "holds a NUL character or half of a surrogate pair, which is not valid text"
        elif isinstance(value, int):
            if abs(value) >= _WHOLE:
                return "holds a whole number that does not fit into 64 bits"
        elif isinstance(value, dict | list):
            if depth == _DEPTH:
                return f"is nested more than {_DEPTH} levels deep"
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            found += [(item, depth + 1) for item in inner]
    return ""
