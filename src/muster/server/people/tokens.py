"""What people do with tokens: create, list, rotate, revoke, and exchange an invitation for one. Each is one write."""

from __future__ import annotations

import time

from sqlalchemy import Connection, and_, false, or_, select

from muster import errors
from muster.control.access import AGENT, Action, Caller, may, narrower, require
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.people.access import FOLDER_LABEL, INVITE, Kept, Tokens, kept_of, session_label, token_hash
from muster.wire.people import INVITE_PREFIX, IssuedToken, Join, NewInvite, NewToken, Role, TokenView

_LEAST_OF_ID = 6
_WRONG_INVITE = errors.AccessDenied(
    "the invitation is not valid here: it was used, it expired, or it was revoked",
    "Ask the person who invited you for another one: `muster user invite NAME`.",
)


def create(tokens: Tokens, transaction: Transaction, body: NewToken, caller: Caller) -> IssuedToken:
    """Create a token for oneself; an administrator may create one for somebody else."""
    name = body.person or caller.subject
    require(caller, Action.MANAGE_TOKEN, name, f"the tokens of {name}")
    own = _role_of(tokens, name)
    role = narrower(own, body.role) if body.role else own
    if name == caller.subject and caller.is_person:
        # A token cannot create one with more rights.
        role = narrower(role, caller.role)  # type: ignore[arg-type]
    token, kept = tokens.add(transaction, role, name, body.lifetime_s, body.label)
    return _issued(kept, role, token)


def listing(tokens: Tokens, connection: Connection, caller: Caller, everybody: bool) -> list[TokenView]:
    """The tokens and invitations of the caller; an administrator may list everybody's."""
    table = tables.tokens
    rows = connection.execute(select(table).where(table.c.role != AGENT).order_by(table.c.created_at)).all()
    found = [kept_of(row) for row in rows]
    wanted = [kept for kept in found if everybody or kept.subject == caller.subject]
    return [kept.view(_shown_role(tokens, kept)) for kept in wanted if may(caller, Action.MANAGE_TOKEN, kept.subject)]


def rotate(tokens: Tokens, transaction: Transaction, token_id: str, caller: Caller) -> IssuedToken:
    """Replace a token, which ends at once, by another with the same lifetime."""
    kept = _find(transaction, token_id, caller)
    if kept.role == INVITE:
        raise errors.Conflict(f"{kept.id} is an invitation", "Invite again: `muster user invite NAME`.")
    lifetime_s = kept.expires_at - kept.created_at if kept.expires_at is not None else None
    tokens.end(transaction, _with_sessions(transaction, kept))
    token, fresh = tokens.add(transaction, kept.role, kept.subject, lifetime_s, kept.label)
    return _issued(fresh, _shown_role(tokens, fresh), token)


def revoke(tokens: Tokens, transaction: Transaction, token_id: str, caller: Caller) -> None:
    """End a token at once, and every stream that it opened."""
    tokens.end(transaction, _with_sessions(transaction, _find(transaction, token_id, caller)))


def invite(tokens: Tokens, transaction: Transaction, name: str, body: NewInvite) -> IssuedToken:
    """Create an invitation, which can be exchanged once for a token; earlier ones end."""
    person = tokens.people.find(name)
    if not person.is_active:
        raise errors.Conflict(f"{name} is locked out", f"`muster user enable {name}` lets them in again.")
    table = tables.tokens
    earlier = select(table.c.hash).where(table.c.role == INVITE, table.c.subject == name)
    tokens.end(transaction, transaction.execute(earlier).scalars().all())
    token, kept = tokens.add(transaction, INVITE, name, body.lifetime_s, "invitation")
    return _issued(kept, person.role, token)


def join(tokens: Tokens, transaction: Transaction, body: Join, lifetime_s: float) -> IssuedToken:
    """Exchange an invitation for a token; it works only once."""
    table = tables.tokens
    row = transaction.execute(
        select(table).where(table.c.hash == token_hash(body.invite), table.c.role == INVITE)
    ).first()
    if row is None or not body.invite.startswith(INVITE_PREFIX) or kept_of(row).has_expired(time.time()):
        raise _WRONG_INVITE
    role = tokens.people.role(row.subject)
    if role is None:
        raise _WRONG_INVITE
    tokens.end(transaction, [row.hash])
    token, kept = tokens.add(transaction, role, row.subject, lifetime_s, body.label or "first login")
    return _issued(kept, role, token)


def _with_sessions(transaction: Transaction, kept: Kept) -> list[str]:
    """A token, and the browser sessions that were begun with it."""
    table = tables.tokens
    theirs = select(table.c.hash).where(table.c.subject == kept.subject, table.c.label == session_label(kept.id))
    return [kept.hash, *transaction.execute(theirs).scalars()]


def _find(transaction: Transaction, token_id: str, caller: Caller) -> Kept:
    """A token by its id, or by the name of one of the caller's; tokens of others are reported as missing."""
    table = tables.tokens
    same_id = table.c.hash.startswith(token_id, autoescape=True) if len(token_id) >= _LEAST_OF_ID else false()
    same_name = and_(table.c.label == token_id, table.c.subject == caller.subject)
    rows = transaction.execute(select(table).where(table.c.role != AGENT, or_(same_id, same_name))).all()
    mine = [kept_of(row) for row in rows if may(caller, Action.MANAGE_TOKEN, row.subject)]
    if not mine:
        raise errors.NotFound(f"there is no token {token_id!r}", "`muster token list` lists yours by their ids.")
    if len(mine) > 1:
        ids = ", ".join(kept.id for kept in mine)
        raise errors.Conflict(f"{token_id!r} is the name of several tokens: {ids}", "Give the id of one.")
    if mine[0].label == FOLDER_LABEL:
        raise errors.Conflict(
            f"{token_id} is the token of the workspace's own folder",
            "Remove server/admin.token there and start the server again: it makes another one.",
        )
    return mine[0]


def _role_of(tokens: Tokens, name: str) -> Role:
    person = tokens.people.find(name)
    role = tokens.people.role(name)
    if role is None:
        raise errors.Conflict(f"{person.name} is locked out", f"`muster user enable {name}` lets them in again.")
    return role


def _shown_role(tokens: Tokens, kept: Kept) -> Role:
    """The role that a token has now."""
    own = tokens.people.role(kept.subject) or "reader"
    return own if kept.role == INVITE else narrower(own, kept.role)  # type: ignore[arg-type]


def _issued(kept: Kept, role: Role, token: str) -> IssuedToken:
    return IssuedToken(**vars(kept.view(role)), token=token)
