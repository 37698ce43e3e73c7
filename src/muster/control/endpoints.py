"""What happens next to the runs of an endpoint: a new one takes over once it answers, an old one ends unused. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster.wire import states

STARTING: Final = "starting"
SERVING: Final = "serving"
DRAINING: Final = "draining"
ENDED: Final = "ended"
AGAIN_S = 5.0
"""Delay before a run that served and ended by itself is replaced."""

Act = Literal["serve", "drain", "cancel", "forget", "replace", "lose", "again"]
"""`lose`: nobody answers any more where a run's replicas were; `again`: a run that failed gets new attempts."""


@dataclass(frozen=True)
class Member:
    """A run of an endpoint."""

    run: str
    deployment: str | None
    """None: the front door."""
    revision: int
    state: str
    status: str
    ready: int = 0
    """Replicas that answer."""
    unused: bool = False
    """The front door no longer sends anything there, and has every answer."""
    age_s: float = 0.0
    """How long it has been in its state."""
    lost: bool = False
    """Its replicas belong to an attempt that is over."""

    @property
    def is_over(self) -> bool:
        return self.status in states.TERMINAL


@dataclass(frozen=True)
class Wanted:
    """What is deployed under a name."""

    revision: int
    instances: int


@dataclass(frozen=True)
class Step:
    """One thing to do to one run."""

    act: Act
    run: str


def next_steps(members: Sequence[Member], wanted: Mapping[str, Wanted]) -> list[Step]:
    """What to do now. Every step may be repeated without harm."""
    steps: list[Step] = []
    for member in members:
        if member.deployment is None:
            steps += _door_steps(member)
            continue
        goal = wanted.get(member.deployment)
        newest = goal is not None and member.revision == goal.revision
        if member.state == DRAINING:
            if member.is_over:
                steps.append(Step("forget", member.run))
            elif member.unused:
                steps.append(Step("cancel", member.run))
        elif goal is None or (not newest and _is_replaced(members, member, goal)):
            steps.append(Step("drain", member.run))
        elif newest and member.state == STARTING and not member.is_over and _answers(members, member, goal):
            steps.append(Step("serve", member.run))
        elif newest and member.state == SERVING and member.status == states.FAILED and member.age_s >= AGAIN_S:
            # It served, so the deployment itself is not bad.
            steps.append(Step("again", member.run))
        elif member.lost:
            steps.append(Step("lose", member.run))
    return steps


def _answers(members: Sequence[Member], member: Member, goal: Wanted) -> bool:
    """Whether a run may get requests: its revision has all the replicas that are wanted, or others serve already.

    Also where none need stay: one that answers shows that the deployment is a good one.
    """
    parts = [
        other
        for other in members
        if other.deployment == member.deployment and other.revision == member.revision and not other.is_over
    ]
    is_served = any(part.state == SERVING for part in parts)
    if not goal.instances:
        return is_served or any(part.ready for part in parts)
    if is_served:
        return member.ready > 0
    return sum(part.ready for part in parts) >= goal.instances


def _door_steps(door: Member) -> list[Step]:
    if door.state == DRAINING:
        return [Step("forget" if door.is_over else "cancel", door.run)]
    if door.is_over and door.age_s >= AGAIN_S:
        return [Step("replace", door.run)]
    return []


def _is_replaced(members: Sequence[Member], old: Member, goal: Wanted) -> bool:
    """Whether the newest revision serves. One that failed before it did leaves the old one where it is."""
    return any(
        other.deployment == old.deployment
        and other.revision == goal.revision
        and other.state == SERVING
        and not other.is_over
        for other in members
    ) or (old.is_over and old.state == STARTING)
