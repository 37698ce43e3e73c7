"""Runs that wait for other runs: whether they may start, must wait, or never will. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.wire import states

COMPLETED, ENDED = "completed", "ended"
WHEN = (COMPLETED, ENDED)


@dataclass(frozen=True)
class Dependency:
    """Another run, and how it must have ended."""

    run: str
    when: str = COMPLETED


@dataclass(frozen=True)
class Standing:
    """What its dependencies mean for a run now; with nothing set it may start."""

    waits: str = ""
    """Why it still waits."""
    never: str = ""
    """Why it will never start."""


def parse(text: str) -> Dependency:
    """`RUN` or `RUN:completed`: it must have completed; `RUN:ended`: it must have ended, in whatever way."""
    run, _, when = text.partition(":")
    return Dependency(run, when or COMPLETED)


def standing(wanted: Sequence[str], statuses: Mapping[str, str]) -> Standing:
    """Where a run stands, by the statuses of the runs it waits for; one without a status was removed."""
    pending = []
    for item in map(parse, wanted):
        status = statuses.get(item.run)
        if status is None:
            return Standing(never=f"{item.run}, which it depends on, was removed")
        if status not in states.TERMINAL:
            pending.append(f"{item.run} ({status})")
        elif item.when == COMPLETED and status != states.COMPLETED:
            return Standing(never=f"{item.run}, which it depends on, ended as {status}")
    if not pending:
        return Standing()
    more = f" and {len(pending) - 3} more" if len(pending) > 3 else ""
    return Standing(waits=f"waits for {', '.join(pending[:3])}{more}")
