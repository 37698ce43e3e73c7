"""Maps recorded events of runs to events of notifications, with their titles. Pure."""

from __future__ import annotations

from muster.control.divergence import is_noted
from muster.wire import states
from muster.wire.notifications import events
from muster.wire.notifications.events import Happening
from muster.wire.stream import Note, StateChanged

_STATES: dict[str, Happening] = {
    states.RUNNING: events.STARTS,
    states.COMPLETED: events.COMPLETES,
    states.FAILED: events.FAILS,
    states.CANCELED: events.CANCELS,
}
_TITLES: dict[Happening, str] = {
    events.STARTS: "{run} runs",
    events.COMPLETES: "{run} completed",
    events.FAILS: "{run} failed",
    events.CANCELS: "{run} was cancelled",
    events.RETRIES: "{run} is tried again",
    events.HANGS: "{run} seems to hang",
    events.NAN: "{run}: the loss is not a number",
    events.TEST: "A test of Muster's notifications",
}
_WAITS_S = (2.0, 10.0, 60.0, 300.0, 1800.0)
_LONGEST_WAIT_S = 3600.0


def happening_of(event: StateChanged | Note, created_at: float) -> Happening | None:
    """What an event tells people about a run that was created at `created_at`; None: nothing to notify of."""
    if isinstance(event, Note):
        return events.NAN if is_noted([event.text]) else None
    if event.status == states.QUEUED:
        # The first time it is queued is not news to its submitter.
        return events.RETRIES if event.at > created_at else None
    return _STATES.get(event.status)


def title(happening: Happening, run: str) -> str:
    """One line for people."""
    return _TITLES[happening].format(run=run)


def wait_s(tries: int) -> float:
    """How long to wait after so many failed tries."""
    return _WAITS_S[tries - 1] if 0 < tries <= len(_WAITS_S) else _LONGEST_WAIT_S
