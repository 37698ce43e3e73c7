"""The next step of a file server: its run is started, restarted, or forgotten. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from muster.wire import states
from muster.wire.data.fileservers import FileServerState

AGAIN_S = 5.0
"""Delay before a run that served and ended by itself is replaced."""

Step = Literal["start", "forget"]


@dataclass(frozen=True)
class Kept:
    """A file server and its run, as recorded."""

    status: str | None = None
    """The run's; None: it has none."""
    ended_s: float = 0.0
    """How long ago the run ended."""
    has_served: bool = False
    """This run has served, so what ended it may be transient."""
    is_up: bool = False
    """Its process reported a moment ago that it serves."""
    removes: bool = False

    @property
    def is_over(self) -> bool:
        return self.status is None or self.status in states.TERMINAL


def next_step(server: Kept) -> Step | None:
    """What to do now; None: nothing. A run that never served is not repeated: it would fail again."""
    if not server.is_over:
        return None
    if server.removes:
        return "forget"
    if server.status is None:
        return "start"
    was_stopped = server.status == states.CANCELED
    return "start" if server.has_served and not was_stopped and server.ended_s >= AGAIN_S else None


def state_of(server: Kept) -> FileServerState:
    """The state that people see."""
    if server.removes:
        return "deleting"
    if not server.is_over:
        return "serving" if server.is_up else "starting"
    if server.status == states.CANCELED:
        return "stopped"
    return "failed" if server.status is not None and not server.has_served else "starting"
