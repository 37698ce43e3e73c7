"""Signing in and out of the portal."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from muster import errors
from muster.control.access import Action, Caller
from muster.defaults import SESSION_S
from muster.server.database.connection import Transaction
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.people import audit
from muster.server.portal import sessions
from muster.version import VERSION
from muster.wire.portal.sessions import Session, SignIn, SignInLink

router = APIRouter(tags=["sessions"])


@router.post("/sign-in-links", status_code=201, dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def make_link(context: ContextOf, caller: CallerOf) -> SignInLink:
    """A secret that opens one session of the portal within minutes, and the portal's URL."""
    if not caller.is_person:
        raise errors.AccessDenied("only people sign in to the portal", "Use a token of a person.")
    audit.about(caller.subject, "sign-in link")
    url = await context.portal.url() if context.portal.url is not None else ""
    secret, until = context.portal.new_link(caller, time.time())
    return SignInLink(secret, until, url)


@router.post("/sign-in", status_code=201)
async def sign_in(body: SignIn, request: Request, response: Response, context: ContextOf) -> Session:
    """Begin a session with the secret of a link or with a token; needs no token."""
    portal, tokens = context.portal, context.tokens
    caller = portal.take(body.link, time.time()) if body.link else tokens.caller(f"Bearer {body.token}")
    deed = audit.CURRENT.get() or audit.Deed(None, "")

    def work(transaction: Transaction) -> str:
        token = sessions.begin(tokens, transaction, caller)
        deed.caller, deed.action = caller, Action.MANAGE_TOKEN
        deed.target, deed.detail = caller.subject, f"signed in with a {'link' if body.link else 'token'}"
        audit.record(transaction, deed, "done")
        return token

    token = await context.database.write(work)
    response.headers["Set-Cookie"] = sessions.cookie(
        context.workspace_id, token, is_secure=request.url.scheme == "https", seconds=SESSION_S
    )
    return _session(context, caller, token)


@router.get("/session", dependencies=[needs(Action.READ)])
async def show(request: Request, context: ContextOf, caller: CallerOf) -> Session:
    """Who is signed in."""
    return _session(context, caller, getattr(request.state, "session", ""))


@router.delete("/session", status_code=204, dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def sign_out(request: Request, context: ContextOf) -> Response:
    """End the session; its token is revoked."""
    token = getattr(request.state, "session", "")
    if not token:
        raise errors.Conflict("this call is of no session", "A token is ended with `muster token revoke`.")
    audit.about(detail="signed out")
    await context.database.write(lambda t: context.tokens.end_token(t, token))
    ended = sessions.cookie(context.workspace_id, "", is_secure=request.url.scheme == "https", seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": ended})


def _session(context: ContextOf, caller: Caller, token: str) -> Session:
    return Session(
        caller.subject,
        caller.role,  # type: ignore[arg-type]
        sessions.csrf_of(token) if token else "",
        context.workspace_id,
        context.tokens.people.is_shared,
        VERSION,
    )
