"""A canary: how it is judged, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from muster.wire.message import check_range, wire

CanaryState = Literal["watching", "stepped back"]


@wire
class CanaryRules:
    """Which deployment is the canary, and how much worse than the others it may do before it loses its traffic."""

    deployment: str
    errors_percent: float = 2.0
    """Its error rate may be higher by so many percentage points."""
    slower: float = 2.0
    """Its 95th percentile may be so many times that of the others."""
    least_requests: int = 20
    """With fewer requests it is not judged."""

    def __post_init__(self) -> None:
        check_range("errors_percent", self.errors_percent, 0, 100)
        check_range("slower", self.slower, 1, 1000)
        check_range("least_requests", self.least_requests, 1, 1_000_000)


@wire
class Counted:
    """Requests to a deployment when the canary began."""

    requests: int = 0
    failed: int = 0


@wire
class CanaryView:
    """A canary and its state."""

    rules: CanaryRules
    state: CanaryState
    before: Mapping[str, int]
    """The traffic before, which is restored if it fails."""
    counted: Mapping[str, Counted]
    began_at: float
    ended_at: float | None = None
    why: str | None = None
    """Why it lost its traffic."""
