"""A deployment on trial: how it is watched, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from muster.wire.message import check_range, wire

CanaryState = Literal["watching", "stepped back"]


@wire
class CanaryRules:
    """Which deployment is on trial, and how much worse than the others it may do before its traffic goes back."""

    deployment: str
    errors_percent: float = 2.0
    """So many more of a hundred requests may fail."""
    slower: float = 2.0
    """So many times the others' 95th percentile may its own be."""
    least_requests: int = 20
    """As many it gets before it is judged."""

    def __post_init__(self) -> None:
        check_range("errors_percent", self.errors_percent, 0, 100)
        check_range("slower", self.slower, 1, 1000)
        check_range("least_requests", self.least_requests, 1, 1_000_000)


@wire
class Counted:
    """Requests to a deployment when the trial began."""

    requests: int = 0
    failed: int = 0


@wire
class CanaryView:
    """A trial."""

    rules: CanaryRules
    state: CanaryState
    before: Mapping[str, int]
    """The traffic that it goes back to."""
    counted: Mapping[str, Counted]
    began_at: float
    ended_at: float | None = None
    why: str | None = None
    """Why the traffic went back."""
