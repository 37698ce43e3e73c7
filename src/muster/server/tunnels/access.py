"""Who may enter a run. One pure function: the only place that decides it."""

from __future__ import annotations

from dataclasses import dataclass

from muster import errors
from muster.server.people.access import Caller


@dataclass(frozen=True)
class Entered:
    """The run that somebody wants to enter, as far as it matters for that."""

    run: str
    submitted_by: str | None


def may_enter(caller: Caller, entered: Entered) -> errors.AccessDenied | None:
    """The refusal of a caller that may not open tunnels into a run; None where it may.

    A shell has all that the run's ranks have, its secrets included. A token that may submit jobs could have these
    anyway; one that may only look must not.
    """
    if caller.role in ("admin", "user"):
        return None
    return errors.AccessDenied(
        f"a token with the role {caller.role!r} may not enter run {entered.run}",
        "Ask the workspace's owner for a token with the role 'user'.",
    )
