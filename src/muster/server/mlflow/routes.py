"""MLflow's routes: JSON calls through the table of endpoints, artifacts as bytes, the server's health and version."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from muster import errors
from muster.control.access import RUN, Action, Caller
from muster.server.context import Context
from muster.server.http import ranges
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.uploads import body_pieces
from muster.server.mlflow import artifacts, permissions, run_views, waiting
from muster.server.mlflow.permissions import Acting
from muster.server.mlflow.protocol import (
    ABSENT,
    DENIED,
    INVALID,
    NO_ENDPOINT,
    Args,
    Call,
    MlflowError,
)
from muster.server.mlflow.table import resolve
from muster.server.runs import changes
from muster.wire.codec import Json
from muster.wire.tracking import ATTEMPT_HEADER, EVENTS_HEADER, RUN_HEADER

log = logging.getLogger("muster.server")

router = APIRouter(include_in_schema=False)
_METHODS = ["GET", "POST", "PATCH", "DELETE", "PUT"]
_ATTEMPT_DIGITS = 9
_BODY_BYTES = 16 << 20
_SERVER_VERSION = "3.17.0"
"""The newest version of MLflow whose calls are answered here."""
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"

Route = Callable[..., Awaitable[Response]]


def refusing(route: Route) -> Route:
    """Turn user errors into those of MLflow: with a code that clients know, and never a 500, which they would retry."""

    @wraps(route)
    async def answer(*args: object, **given: object) -> Response:
        try:
            return await route(*args, **given)
        except MlflowError as error:
            return JSONResponse(error.answer, error.status)
        except errors.NotFound as error:
            return JSONResponse(MlflowError(ABSENT, error.message).answer, 404)
        except errors.AccessDenied as error:
            return JSONResponse(MlflowError(DENIED, error.message).answer, 403)
        except errors.UserError as error:
            return JSONResponse(MlflowError(INVALID, error.message).answer, 400)

    return answer


@router.get("/health")
async def health() -> Response:
    return PlainTextResponse("OK")


@router.get("/version")
async def version() -> Response:
    return PlainTextResponse(_SERVER_VERSION)


@router.api_route("/api/2.0/mlflow/{path:path}", methods=_METHODS)
@refusing
async def call(path: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    """One call of MLflow's REST protocol."""
    found = resolve(request.method, path)
    if found is None:
        raise MlflowError(NO_ENDPOINT, f"Muster does not answer {request.method} {request.url.path}")
    handler, only_reads, in_path = found
    args = Args({**await _arguments(request), **in_path})
    who = await _acting(request, context, caller)
    await context.database.read(lambda c: permissions.check(c, who, request.method, path, args))
    made = Call(context, args, who.caller.subject, who.run_id)
    if only_reads:
        answer = await context.database.read(lambda c: handler(c, made))
    else:
        answer = await context.database.write(lambda t: handler(t, made))
    return JSONResponse(answer)


@router.get(_ARTIFACTS)
@refusing
async def list_artifacts(request: Request, context: ContextOf, caller: CallerOf, path: str = "") -> Response:
    """List the artifacts directly below an address."""
    await _acting(request, context, caller)
    place = artifacts.place_of(path)
    files = await context.database.read(lambda c: artifacts.listing(context, c, place))
    return JSONResponse({"files": files})


@router.get(_ARTIFACTS + "/{path:path}")
@refusing
async def download(path: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    await _acting(request, context, caller)
    place = artifacts.place_of(path)
    file = await context.database.read(lambda c: artifacts.find(context, c, place))

    def pieces(offset: int, length: int) -> Iterator[bytes]:
        return artifacts.pieces(context, file, offset, length)

    return ranges.answer(request, file.size, pieces, is_growing=True)


@router.put(_ARTIFACTS + "/{path:path}")
@refusing
async def upload(path: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    who = await _acting(request, context, caller)
    place = artifacts.place_of(path)
    if not place.path:
        raise MlflowError(INVALID, "an artifact needs a name")
    await context.database.read(lambda c: who.require(c, Action.LOG_TO_RUN, place.run_id))
    row = await context.database.read(lambda c: run_views.find(c, place.run_id))
    stored = await body_pieces(request, lambda pieces: changes.store_file(context, row.id, place.path, pieces))
    await context.database.write(lambda t: changes.add_file(t, row.id, stored))
    return JSONResponse({})


@router.delete(_ARTIFACTS + "/{path:path}")
@refusing
async def remove(path: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    who = await _acting(request, context, caller)
    place = artifacts.place_of(path)
    await context.database.read(lambda c: who.require(c, Action.LOG_TO_RUN, place.run_id))
    await context.database.write(lambda t: artifacts.forget(t, place))
    return JSONResponse({})


@router.api_route("/api/2.0/{path:path}", methods=_METHODS)
@router.api_route("/api/3.0/{path:path}", methods=_METHODS)
@refusing
async def unknown(path: str, request: Request) -> Response:
    """A 404 that clients do not retry."""
    raise MlflowError(NO_ENDPOINT, f"Muster does not answer {request.method} {request.url.path}")


async def _arguments(request: Request) -> dict[str, Json]:
    query = parse_qs(request.url.query, keep_blank_values=True)
    given: dict[str, Json] = {name: values if len(values) > 1 else values[0] for name, values in query.items()}
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _BODY_BYTES:
            raise MlflowError(INVALID, f"the body is longer than {_BODY_BYTES >> 20} MiB")
    if body.strip():
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise MlflowError(INVALID, "the body is not JSON") from None
        if not isinstance(found, dict):
            raise MlflowError(INVALID, "the body is no JSON object")
        given.update(found)
    return given


async def _acting(request: Request, context: Context, caller: Caller) -> Acting:
    """The caller: a person, or a rank with the token of its run, once all that it logged before has arrived."""
    run_id = request.headers.get(RUN_HEADER)
    if caller.role != RUN:
        if run_id is not None:
            raise MlflowError(DENIED, "only the token of a run speaks for it")
        return await context.database.read(lambda c: permissions.acting(c, caller, None))
    attempt = request.headers.get(ATTEMPT_HEADER, "")
    if run_id != caller.subject or not attempt.isdecimal() or len(attempt) > _ATTEMPT_DIGITS:
        raise MlflowError(DENIED, "the token of a run opens one of its attempts, which the call names")
    await waiting.for_events(context, run_id, int(attempt), request.headers.get(EVENTS_HEADER, ""))
    return await context.database.read(lambda c: permissions.acting(c, caller, run_id))
