"""People, their tokens, and the audit log."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from muster import errors
from muster.control.access import Action, Caller
from muster.defaults import TOKEN_S
from muster.server.database.connection import Transaction
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.people import audit, signing_on, sso, tokens
from muster.wire.people import (
    AuditEntry,
    Invitation,
    IssuedToken,
    Join,
    Myself,
    NewInvite,
    NewPerson,
    NewToken,
    PersonChanges,
    PersonView,
    SsoLogin,
    SsoView,
    TokenView,
)

router = APIRouter(tags=["people"])


@router.get("/me", dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def myself(context: ContextOf, caller: CallerOf) -> Myself:
    """Who the caller is to the server."""
    return Myself(caller.subject, caller.role, context.workspace_id, context.tokens.people.is_shared)


@router.get("/people", dependencies=[needs(Action.READ)])
async def list_people(context: ContextOf, page: PageOf) -> list[PersonView]:
    """Everybody who may use the workspace, with their roles."""
    people = context.tokens.people
    return page.of([people.view(person) for person in people.all()], lambda item: (item.name,))


@router.post("/people", status_code=201, dependencies=[needs(Action.MANAGE_PEOPLE)])
async def add_person(body: NewPerson, context: ContextOf, caller: CallerOf) -> PersonView:
    """Add somebody; they need an invitation or a token then."""
    people = context.tokens.people
    account = f", account {body.unix_user}" if body.unix_user else ""
    audit.about(body.name, f"add as {body.role}{account}")
    person = await context.database.write(
        lambda t: people.add(t, body.name, body.role, caller.subject, unix_user=body.unix_user)
    )
    return people.view(person)


@router.patch("/people/{name}", dependencies=[needs(Action.MANAGE_PEOPLE)])
async def change_person(name: str, body: PersonChanges, context: ContextOf) -> PersonView:
    """Give somebody another role, lock them out at once, or let them in again."""
    people = context.tokens.people
    lock = {True: "disable", False: "enable"}.get(body.disabled) if body.disabled is not None else None
    account = f"account {body.unix_user or 'none'}" if body.unix_user is not None else ""
    audit.about(detail=", ".join(word for word in (f"role {body.role}" if body.role else "", lock, account) if word))
    person = await context.database.write(lambda t: people.change(t, name, body.role, body.disabled, body.unix_user))
    context.tokens.on_change()
    return people.view(person)


@router.delete("/people/{name}", status_code=204, dependencies=[needs(Action.MANAGE_PEOPLE)])
async def remove_person(name: str, context: ContextOf) -> Response:
    """Remove somebody with their tokens; what they made stays, so nobody else gets the name."""
    audit.about(detail="remove")

    def work(transaction: Transaction) -> None:
        context.tokens.people.remove(transaction, name)
        context.tokens.end_person(transaction, name)

    await context.database.write(work)
    return Response(status_code=204)


@router.post("/people/{name}/invite", status_code=201, dependencies=[needs(Action.MANAGE_PEOPLE)])
async def invite_person(name: str, body: NewInvite, context: ContextOf) -> Invitation:
    """Create an invitation, which can be exchanged once for a token; it is shown only now."""
    audit.about(detail="invite")
    made = await context.database.write(lambda t: tokens.invite(context.tokens, t, name, body))
    return Invitation(**vars(made), fingerprint=context.fingerprint)


@router.post("/join", status_code=201)
async def join(body: Join, context: ContextOf) -> IssuedToken:
    """Exchange an invitation for a token; needs no token."""
    deed = audit.CURRENT.get() or audit.Deed(None, "")

    def work(transaction: Transaction) -> IssuedToken:
        made = tokens.join(context.tokens, transaction, body, TOKEN_S)
        deed.caller, deed.action = Caller(made.role, made.person, made.id), Action.MANAGE_TOKEN
        deed.target, deed.detail = made.id, "joined by invitation"
        audit.record(transaction, deed, "done")
        return made

    return await context.database.write(work)


@router.get("/sso")
async def show_sso(context: ContextOf) -> SsoView:
    """The sign-on service; needs no token."""
    return _sso(context).config.view


@router.post("/sso", status_code=201)
async def sign_on(body: SsoLogin, context: ContextOf) -> IssuedToken:
    """Exchange an ID token of the sign-on service for a token; needs no token."""
    state = _sso(context)
    found = await asyncio.to_thread(state.identify, body.id_token)
    return await signing_on.let_in(context, state, found, body.label)


def _sso(context: ContextOf) -> sso.SsoState:
    if context.sso is None:
        raise errors.NotFound(
            "this workspace has no single sign-on", "An administrator names the service under `sso` in workspace.json."
        )
    return context.sso


@router.get("/tokens", dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def list_tokens(context: ContextOf, caller: CallerOf, page: PageOf, everybody: bool = False) -> list[TokenView]:
    """The caller's tokens; with `everybody` an administrator sees those of all."""
    found = await context.database.read(lambda c: tokens.listing(context.tokens, c, caller, everybody))
    return page.of(found, lambda item: (item.created_at, item.id))


@router.post("/tokens", status_code=201, dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def create_token(body: NewToken, context: ContextOf, caller: CallerOf) -> IssuedToken:
    """Create a token, which is shown only now."""
    audit.about(body.person or caller.subject, f"create {body.label!r}")
    return await context.database.write(lambda t: tokens.create(context.tokens, t, body, caller))


@router.post("/tokens/{token_id}/rotate", dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def rotate_token(token_id: str, context: ContextOf, caller: CallerOf) -> IssuedToken:
    """Replace a token, which ends at once, by a new one."""
    audit.about(detail="rotate")
    return await context.database.write(lambda t: tokens.rotate(context.tokens, t, token_id, caller))


@router.delete("/tokens/{token_id}", status_code=204, dependencies=[needs(Action.MANAGE_TOKEN, asks_owner=True)])
async def revoke_token(token_id: str, context: ContextOf, caller: CallerOf) -> Response:
    """End a token at once."""
    audit.about(detail="revoke")
    await context.database.write(lambda t: tokens.revoke(context.tokens, t, token_id, caller))
    return Response(status_code=204)


@router.get("/audit", dependencies=[needs(Action.READ_AUDIT)])
async def list_audit(
    context: ContextOf, page: PageOf, who: str | None = None, action: str | None = None
) -> list[AuditEntry]:
    """Who did what to what, the newest first."""
    before, limit = page.number_after(), None if page.limit is None else page.limit + 1
    found = await context.database.read(lambda c: audit.listing(c, before, limit, who, action))
    return page.trim(found, lambda item: (item.id,))
