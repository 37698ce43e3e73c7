"""A person who has signed on at the team's service gets a token, and the audit log an entry."""

from __future__ import annotations

from muster.control.access import Action, Caller
from muster.server.context import Context
from muster.server.database.connection import Transaction
from muster.server.people import audit, sso
from muster.server.people.identity import Identity
from muster.wire.people import IssuedToken


async def let_in(context: Context, state: sso.SsoState, found: Identity, label: str) -> IssuedToken:
    """A token for the person that the service vouches for."""
    deed = audit.CURRENT.get() or audit.Deed(None, "")

    def work(transaction: Transaction) -> IssuedToken:
        made = sso.sign_on(context.tokens, transaction, found, state.config.role, label)
        deed.caller, deed.action = Caller(made.role, made.person, made.id), Action.MANAGE_TOKEN
        deed.target, deed.detail = made.id, f"single sign-on as {found.email or found.subject}"
        audit.record(transaction, deed, "done")
        return made

    return await context.database.write(work)
