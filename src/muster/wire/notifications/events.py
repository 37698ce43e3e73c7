"""Events of runs as job files name them, and the notification itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from muster.wire.message import wire
from muster.wire.runs import Progress
from muster.wire.states import RunStatus
from muster.wire.verdicts import Verdict

Happening = Literal["starts", "completes", "fails", "cancels", "retries", "hangs", "nan", "test"]
"""The event that a notification is about."""
STARTS: Final = "starts"
COMPLETES: Final = "completes"
FAILS: Final = "fails"
CANCELS: Final = "cancels"
RETRIES: Final = "retries"
HANGS: Final = "hangs"
NAN: Final = "nan"
TEST: Final = "test"
ENDS: Final = "ends"
"""Completes, fails or is cancelled."""

CHOICES: tuple[str, ...] = (ENDS, *(word for word in get_args(Happening) if word != TEST))
"""The allowed values of `when`."""
USUAL: tuple[str, ...] = (ENDS, HANGS, NAN)
QUIET_S = 900.0
"""How long a run must be silent to count as hanging."""
LEAST_QUIET_S = 10.0
MOST_QUIET_S = 30 * 86_400.0


def unknown(words: Iterable[str]) -> str | None:
    """The first word that is not in `CHOICES`."""
    return next((word for word in words if word not in CHOICES), None)


def wants(words: Iterable[str], happening: str) -> bool:
    """Whether a subscription to `words` covers the event."""
    return happening in words or (ENDS in words and happening in (COMPLETES, FAILS, CANCELS))


@wire
class NotifiedRun:
    """The run that a notification is about."""

    id: str
    name: str | None
    experiment: str
    status: RunStatus
    cluster: str
    person: str | None
    attempt: int
    created_at: float
    started_at: float | None
    ended_at: float | None


@wire
class Notification:
    """The body that a webhook gets. The same `id` again is the same notification, sent again."""

    id: str
    event: Happening
    at: float
    """When it happened."""
    title: str
    """One line for people."""
    text: str
    """Details; may be empty."""
    workspace: str
    run: NotifiedRun | None
    """None: a test."""
    verdict: Verdict | None = None
    progress: Progress | None = None
    url: str | None = None
    """The run's page, where the server serves a team."""
