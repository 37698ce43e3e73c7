"""Which calls a port accepts: those of agents on other machines, or those of people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from muster.server.people.run_tokens import PREFIX
from muster.storage.granting import DATA_ROUTE
from muster.wire.data.access import GRANT_HEADER
from muster.wire.tracking import RUN_HEADER

_AGENTS = "/api/v1/agents/"
_MLFLOW = ("/api/2.0/", "/api/3.0/")
_OF_RANKS = re.compile(r"/api/v1/runs/[^/]+/(data|serving|serving/routes|serving/collected)")
"""Calls that ranks make about their own run through their node's proxy, besides MLflow's."""
_CODE = re.compile(r"/api/v1/snapshots/[0-9a-f]{1,64}(/archive|/files/.+)?", re.DOTALL)
"""An open attempt's code, as one stream or file by file."""
_NO_AGENTS = {
    "code": "not_found",
    "message": "agents have a port of their own here",
    "hint": "It is the `server_port` of their cluster.",
}
_REFUSAL = {
    "code": "not_found",
    "message": "this port serves the agents of nodes, and nothing else",
    "hint": "People reach the server at the address that `muster up` listens on.",
}


def is_agents(method: str, path: str, headers: frozenset[bytes], of_run: bool = False) -> bool:
    """Whether a call is one that agents make; `of_run`: it carries the token of a run. Pure."""
    if path.startswith(_AGENTS):
        return True
    if path.startswith(f"{DATA_ROUTE}/"):
        # With a grant of its own; a person's token is not accepted here.
        return GRANT_HEADER.lower().encode() in headers and b"authorization" not in headers
    if path.startswith(_MLFLOW):
        # For a rank: a caller that names a run and is not an agent is refused.
        return RUN_HEADER.lower().encode() in headers
    if of_run and _OF_RANKS.fullmatch(path) is not None:
        return method in ("GET", "POST")
    return method == "GET" and _CODE.fullmatch(path) is not None


class AgentsDoor:
    """The same application, for agents only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            names = frozenset(name.lower() for name, _ in scope["headers"])
            shown = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
            of_run = shown.startswith(f"Bearer {PREFIX}".encode())
            if not is_agents(scope["method"], scope["path"], names, of_run):
                await _refuse(send)
                return
        await self._app(scope, receive, send)


class PeopleDoor:
    """The same application at the port of a team, without agents where these have a port of their own."""

    def __init__(self, app: ASGIApp, agents_elsewhere: Callable[[], bool]) -> None:
        self._app = app
        self._agents_elsewhere = agents_elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_AGENTS) and self._agents_elsewhere():
            await _refuse(send, _NO_AGENTS)
            return
        await self._app(scope, receive, send)


async def _refuse(send: Send, refusal: Mapping[str, str] = _REFUSAL) -> None:
    body = json.dumps({"error": refusal}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 404, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
