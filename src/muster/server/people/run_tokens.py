"""The token of a run: signed, valid for the run itself, and only while its attempt is open."""

from __future__ import annotations

import hmac
import re
import time
from hashlib import sha256

from sqlalchemy import Connection, select

from muster import errors
from muster.control.access import RUN, Caller
from muster.defaults import GRANT_CHECK_S
from muster.server.context import Context
from muster.server.database import tables
from muster.wire import states

PREFIX = "muster_run_"
_TOKEN = re.compile(
    rf"{PREFIX}(?P<mac>[0-9a-f]{{64}})\.(?P<attempt>[0-9]{{1,9}})\.(?P<run>(?:[0-9a-f]{{2}}){{1,1020}})"
)
_WRONG = errors.AccessDenied("the run's token is not valid here, or its attempt is over")


def make(context: Context, run: str, attempt: int) -> str:
    """The token of an attempt; always the same for the same attempt."""
    return f"{PREFIX}{_mac(context.vault.run_keys[0], run, attempt)}.{attempt}.{run.encode().hex()}"


def caller(context: Context, token: str) -> Caller:
    """The run that a token belongs to; raises AccessDenied where its attempt is over."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise _WRONG
    run, attempt = bytes.fromhex(found["run"]).decode(errors="replace"), int(found["attempt"])
    if not any(hmac.compare_digest(_mac(key, run, attempt), found["mac"]) for key in context.vault.run_keys):
        raise _WRONG
    seen, now = context.data.grants_checked, time.time()
    key = f"run/{run}/{attempt}"
    if now - seen.get(key, 0.0) > GRANT_CHECK_S:
        context.database.read_now(lambda c: _check_open(c, run, attempt))
        seen[key] = now
    return Caller(RUN, run)


def _check_open(connection: Connection, run: str, attempt: int) -> None:
    table = tables.placements
    mine = table.c.run_id == run, table.c.number == attempt, table.c.phase.in_(states.IS_OPEN)
    if connection.execute(select(table.c.node).where(*mine)).first() is None:
        raise _WRONG


def _mac(key: bytes, run: str, attempt: int) -> str:
    return hmac.new(key, f"{run}/{attempt}".encode(), sha256).hexdigest()
