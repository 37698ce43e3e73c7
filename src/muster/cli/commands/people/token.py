"""Tokens: `muster token …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated

from muster.cli.commands.people.user import role_of
from muster.cli.console import say
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.text import moment, table
from muster.client.connect import connect
from muster.wire.people import IssuedToken, TokenView

NEVER = "never"

Token = Annotated[str, argument("ID", "The token's id or name, as `muster token list` shows them.")]


def create(
    name: Annotated[str, option("NAME", "A name to recognise it by.")] = "",
    user: Annotated[str | None, option("USER", "For somebody else (administrators).")] = None,
    role: Annotated[str | None, option("ROLE", "Narrower than the person's own.")] = None,
    expires: Annotated[str, option("TIME", "How long it is good for, or `never`.")] = "90d",
    as_json: Json = False,
) -> None:
    """Make a token and print it. This is the only time that it is seen.

    Programs send it as the header `Authorization: Bearer TOKEN`; the command line takes it from MUSTER_TOKEN or the
    file that MUSTER_TOKEN_FILE names.

    \b
    Examples:
      muster token create --name ci --role reader
      muster token create --expires 1d > token
    """
    lifetime_s = None if expires == NEVER else float(seconds_of("--expires", expires))
    _print_token(connect().create_token(name, user, role_of(role) if role else None, lifetime_s), as_json)


def list_(
    everybody: Annotated[bool, switch("Those of everybody (administrators).", "--all")] = False, as_json: Json = False
) -> None:
    """List your tokens without their secrets.

    \b
    Examples:
      muster token list
      muster token list --all
    """
    found = connect().tokens(everybody)
    print_result(found, token_lines(found, time.time()), as_json)


def rotate(token: Token, as_json: Json = False) -> None:
    """Replace a token: print a new one, and end the old one at once.

    \b
    Examples:
      muster token rotate ci
    """
    _print_token(connect().rotate_token(token), as_json)


def revoke(
    tokens: Annotated[list[str], argument("ID", "Ids or names, as `muster token list` shows them.")],
    as_json: Json = False,
) -> None:
    """Revoke tokens at once, and cut off whatever uses them.

    \b
    Examples:
      muster token revoke ci
    """
    client = connect()
    for token in tokens:
        client.revoke_token(token)
        say(f"token {token} is revoked")
    if as_json:
        print_json({"revoked": list(tokens)})


COMMANDS = (create, list_, rotate, revoke)


def token_lines(tokens: Sequence[TokenView], now: float) -> list[str]:
    rows = [
        [
            item.id,
            item.person,
            item.role,
            moment(item.created_at, now),
            NEVER if item.expires_at is None else _until(item.expires_at, now),
            "" if item.used_at is None else moment(item.used_at, now),
            item.label,
        ]
        for item in tokens
    ]
    return table(["ID", "USER", "ROLE", "MADE", "EXPIRES", "USED", "NAME"], rows)


def _until(at: float, now: float) -> str:
    return "expired" if at < now else moment(at, now)


def _print_token(made: IssuedToken, as_json: bool) -> None:
    print_result(made, [made.token], as_json)
    sys.stdout.flush()
    until = "it does not expire" if made.expires_at is None else f"until {moment(made.expires_at, time.time())}"
    say(f"token {made.id} of {made.person} ({made.role}), {until}; it is not shown again")
