"""The HTTP application: version and token are checked, then a route is chosen; errors as JSON."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster import errors
from muster.control.access import AGENT, GRANT, RUN, Caller
from muster.defaults import NEWEST_PROTOCOL, OLDEST_PROTOCOL, PROTOCOL_VERSION
from muster.server.context import Context
from muster.server.data import code_routes, grants, node_routes
from muster.server.data import routes as data_routes
from muster.server.endpoints import routes as endpoint_routes
from muster.server.endpoints.batch import routes as batch_endpoint_routes
from muster.server.environments import node_routes as build_routes
from muster.server.environments import routes as environment_routes
from muster.server.fileservers import routes as fileserver_routes
from muster.server.http import routes as workspace_routes
from muster.server.http.bodies import bounded, checked_body, is_json
from muster.server.http.docs_page import docs_page
from muster.server.http.needs import undeclared
from muster.server.jobs import routes as job_routes
from muster.server.mlflow import routes as mlflow_routes
from muster.server.models import routes as model_routes
from muster.server.monitoring import routes as monitoring_routes
from muster.server.nodes import agent_routes, cluster_routes
from muster.server.notifications import routes as notification_routes
from muster.server.people import audit, people_routes, run_tokens, secret_routes
from muster.server.portal import pages, sessions, sign_on
from muster.server.portal import routes as session_routes
from muster.server.runs import checkpoint_routes
from muster.server.runs import routes as run_routes
from muster.server.tracking import routes as tracking_routes
from muster.server.tunnels import routes as tunnel_routes
from muster.storage.granting import DATA_ROUTE
from muster.version import VERSION
from muster.wire.codec import pass_over_unknown_fields, to_json
from muster.wire.data.access import GRANT_HEADER
from muster.wire.workspace import VERSION_HEADER

log = logging.getLogger("muster.server")

ROUTERS = tuple(
    module.router
    for module in (
        run_routes,
        tracking_routes,
        code_routes,
        checkpoint_routes,
        agent_routes,
        cluster_routes,
        data_routes,
        environment_routes,
        node_routes,
        build_routes,
        people_routes,
        session_routes,
        secret_routes,
        model_routes,
        endpoint_routes,
        batch_endpoint_routes,
        fileserver_routes,
        tunnel_routes,
        job_routes,
        notification_routes,
        workspace_routes,
    )
)
_STATUS: tuple[tuple[type[errors.MusterError], int], ...] = (
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.AccessDenied, 403),
    (errors.UserError, 422),
    (errors.ProtocolMismatch, 426),
    (errors.DiskFull, 507),
    (errors.ServerUnavailable, 503),
)
_READER_S = 120.0
_REJECTED: tuple[type[Exception], ...] = (DataError, OverflowError, RecursionError, UnicodeError)
"""Errors for a value that passed validation and that the database or a parser rejects."""
_DATA = f"{DATA_ROUTE}/"
_PORTAL = "/portal/"
_GRANT_HEADER = GRANT_HEADER.lower().encode()
_OPEN = (
    *("/api/v1/health", "/api/v1/openapi.json", "/api/v1/docs", "/api/v1/join", "/api/v1/sso"),
    *("/health", "/version", "/api/v1/sign-in", "/", "/portal"),
)
"""What needs no token."""


def make_app(context: Context, stop: Callable[..., None]) -> ASGIApp:
    """The application of one workspace."""
    app = FastAPI(
        title="Muster",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.add_route("/api/v1/docs", lambda _: HTMLResponse(docs_page(app.openapi())), include_in_schema=False)
    app.state.context = context
    app.state.stop = stop
    for router in ROUTERS:
        app.include_router(router, prefix="/api/v1", dependencies=[Depends(checked_body), Depends(undeclared)])
    app.include_router(mlflow_routes.router)
    app.include_router(sign_on.router)
    app.include_router(pages.router)
    app.include_router(monitoring_routes.router)
    for kind in (errors.MusterError, RequestValidationError, HTTPException, OSError, *_REJECTED, Exception):
        app.add_exception_handler(kind, _error_response)
    return _Gate(app, context)


class _Gate:
    """Checks version and token before a route is chosen."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        try:
            _check_version(headers.get(VERSION_HEADER.lower().encode()))
            caller = await self._admit(scope, headers)
        except errors.MusterError as error:
            response = await _error_response(Request(scope), error)
            await response(scope, receive, send)
            return
        often = _frequent_call(scope["method"], scope["path"])
        if often is None:
            is_bounded = is_json(headers.get(b"content-type", "")) and not _is_file(scope["path"])
            await self._answer(scope, bounded(receive) if is_bounded else receive, send, caller)
            return
        work, node = often
        request = Request(scope, bounded(receive))
        try:
            response = _Answer(to_json(await work(node, request, self._context, caller)))
        except Exception as error:
            response = await _error_response(request, error)
        await response(scope, receive, send)

    async def _admit(self, scope: Scope, headers: Mapping[bytes, str]) -> Caller | None:
        """Who is calling; None where no token is needed. Raises AccessDenied."""
        state = scope.setdefault("state", {})
        grant = headers.get(_GRANT_HEADER) or _grant_in_query(scope)
        if scope["path"].startswith(_DATA) and grant:
            grants.check_source(self._context, scope.get("client"))
            admitted = await asyncio.to_thread(grants.admit, self._context, grant)
            state.update(grant=admitted, caller=Caller(GRANT, admitted.subject))
            return None
        if scope["path"] in _OPEN or scope["path"].startswith(_PORTAL):
            return None
        shown = headers.get(b"authorization")
        if shown is None and (session := sessions.token_in(headers, self._context.workspace_id)):
            sessions.check_origin(scope["method"], headers, session)
            state["session"], shown = session, f"Bearer {session}"
        if (token := (shown or "").removeprefix("Bearer ")).startswith(run_tokens.PREFIX):
            state["caller"] = caller = await asyncio.to_thread(run_tokens.caller, self._context, token)
            return caller
        caller = state["caller"] = self._context.tokens.caller(shown)
        if caller.role != AGENT:
            self._context.touched = time.monotonic()
        return caller

    async def _answer(self, scope: Scope, receive: Receive, send: Send, caller: Caller | None) -> None:
        """Have a route answer, and record it in the audit log."""
        deed = audit.Deed(caller, _source(scope))
        status = 500

        def holds() -> bool:
            # A run's token ends with its attempt, and so does its stream.
            return caller is None or caller.role == RUN or self._context.tokens.holds(caller)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if "session" in scope["state"]:
                    message["headers"] = [*message.get("headers", ()), *sessions.SANDBOX]
            if message.get("more_body") and not holds():
                raise _TokenEndedError
            await send(message)

        async def receiving() -> Message:
            message = await receive()
            # As if the connection was lost: a partial body is dropped.
            return message if not message.get("more_body") or holds() else {"type": "http.disconnect"}

        reset = audit.CURRENT.set(deed)
        try:
            await self._app(scope, receiving, _with_deadline(noting))
        except _ReaderAsleepError:
            log.info("%s: the client stopped reading, and is disconnected", scope["path"])
        except _TokenEndedError:
            log.info("%s: the token of %s has expired, so the response ends", scope["path"], deed.caller)
        finally:
            audit.CURRENT.reset(reset)
        if status == 403 or (status < 300 and deed.is_kept and not deed.is_recorded):
            outcome = "refused" if status == 403 else "done"
            await self._context.database.write(lambda t: audit.record(t, deed, outcome))


class _ReaderAsleepError(Exception):
    """A client requested bytes and has stopped reading them."""


class _TokenEndedError(Exception):
    """The caller's token was revoked, or expired, during the answer."""


def _with_deadline(send: Send) -> Send:
    async def send_soon(message: Message) -> None:
        try:
            await asyncio.wait_for(send(message), _READER_S)
        except TimeoutError:
            raise _ReaderAsleepError from None

    return send_soon


def _source(scope: Scope) -> str:
    """Where a call comes from."""
    client = scope.get("client")
    return str(client[0]) if client and client[0] else "this machine"


def _frequent_call(method: str, path: str) -> tuple[Callable[..., Any], str] | None:
    """The handler of a call that agents make all the time, and the node that makes it."""
    parts = path.split("/")
    if len(parts) != 6 or parts[3] != "agents":
        return None
    work = agent_routes.OFTEN.get((method, parts[5]))
    return (work, parts[4]) if work else None


def _is_file(path: str) -> bool:
    """Whether a body is a file's bytes, whatever its content type says."""
    return path.startswith(_DATA) or "/files" in path


def _grant_in_query(scope: Scope) -> str | None:
    """A grant in the query, for tools that cannot send a header."""
    query = scope.get("query_string", b"")
    if b"grant=" not in query:
        return None
    return next(iter(parse_qs(query.decode("latin-1")).get("grant", ())), None)


def _check_version(spoken: str | None) -> None:
    if spoken is None:
        return
    number = int(spoken) if spoken.isascii() and spoken.isdigit() and len(spoken) < 6 else 0
    if not OLDEST_PROTOCOL <= number <= NEWEST_PROTOCOL:
        older = "the client or agent" if number < PROTOCOL_VERSION else "the server"
        raise errors.ProtocolMismatch(
            f"the caller speaks protocol {spoken}, this server {OLDEST_PROTOCOL} to {NEWEST_PROTOCOL} "
            f"(Muster {VERSION})",
            f"Upgrade {older}.",
        )
    if number > PROTOCOL_VERSION:
        # For the rest of this call.
        pass_over_unknown_fields()


async def _error_response(request: Request, error: Exception) -> JSONResponse:
    """The error response."""
    if isinstance(error, errors.MusterError):
        return _answer(_status_of(error), error.code, error.message, error.hint)
    if isinstance(error, RequestValidationError):
        problems = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()[:5])
        message = f"the request is not valid: {problems}"
        return _answer(422, errors.JobError.code, message, "See /api/v1/openapi.json.")
    if isinstance(error, HTTPException):
        return _answer(error.status_code, "not_found", f"{request.method} {request.url.path}: {error.detail}")
    if isinstance(error, _REJECTED):
        log.warning("%s %s: %s", request.method, request.url.path, error)
        message = f"the request contains a value that cannot be stored or searched for ({type(error).__name__})"
        return _answer(422, errors.JobError.code, message, "Numbers have at most 64 bits, text is valid Unicode.")
    if isinstance(error, OSError):
        log.error("storage: %s", error)
        return _answer(507, "storage", f"the server's storage failed: {error}", _storage_hint(error))
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    message = f"the server failed with an internal error ({type(error).__name__})"
    return _answer(500, "fault", message, "server.log in the workspace has more.")


def _storage_hint(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "It has used up its file descriptors: raise their limit (`ulimit -n`) and start it again."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Its disk is full: free some space there."
    return "Look at the workspace's disk; server.log has more."


def _status_of(error: errors.MusterError) -> int:
    return next((code for kind, code in _STATUS if isinstance(error, kind)), 500)


class _Answer(JSONResponse):
    """JSON in ASCII: names that a rank gave its files need not be valid text."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def _answer(status: int, code: str, message: str, hint: str = "") -> JSONResponse:
    return _Answer({"error": {"code": code, "message": message, "hint": hint}}, status)
