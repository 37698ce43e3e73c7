"""What happens to runs, in the words of job files and messages, and the message itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from muster.wire.message import wire
from muster.wire.runs import Progress
from muster.wire.states import RunStatus
from muster.wire.verdicts import Verdict

Happening = Literal["starts", "completes", "fails", "cancels", "retries", "hangs", "nan", "test"]
"""What a notification tells of."""
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
"""What `when` takes."""
USUAL: tuple[str, ...] = (ENDS, HANGS, NAN)
QUIET_S = 900.0
"""How long a run prints and logs nothing before it counts as hanging."""
LEAST_QUIET_S = 10.0
MOST_QUIET_S = 30 * 86_400.0


def unknown(words: Iterable[str]) -> str | None:
    """The first word that is none of `CHOICES`."""
    return next((word for word in words if word not in CHOICES), None)


def wants(words: Iterable[str], happening: str) -> bool:
    """Whether somebody who asked for `words` is told of it."""
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
    """The body that a webhook gets. The same `id` again is the same notification, sent once more."""

    id: str
    event: Happening
    at: float
    """When it happened."""
    title: str
    """One line for people."""
    text: str
    """What else is to say; may be empty."""
    workspace: str
    run: NotifiedRun | None
    """None: a test."""
    verdict: Verdict | None = None
    progress: Progress | None = None
    url: str | None = None
    """The run's page, where the server serves a team."""
