"""Whether a canary, a new deployment that gets part of the traffic, keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FLOOR_MS = 5.0
"""Latencies below this are not compared: a few milliseconds double by chance."""


@dataclass(frozen=True)
class Limits:
    """How much worse than the others a canary may do."""

    errors_percent: float = 2.0
    """Its error rate may be higher by so many percentage points."""
    slower: float = 2.0
    """Its 95th percentile may be so many times that of the others."""
    least_requests: int = 20
    """With fewer requests than this no verdict is given."""


@dataclass(frozen=True)
class Seen:
    """Requests and their outcome since the canary began."""

    requests: int = 0
    failed: int = 0
    p95_ms: float = 0.0
    """Of the last minute."""

    @property
    def failed_percent(self) -> float:
        return 100 * self.failed / self.requests if self.requests else 0.0


def since(now: Seen, before: Seen) -> Seen:
    """What is new since `before`; everything where the counting process has restarted in between."""
    if now.requests < before.requests or now.failed < before.failed:
        return now
    return Seen(now.requests - before.requests, now.failed - before.failed, now.p95_ms)


def together(found: list[Seen]) -> Seen:
    """Several deployments combined; latency is that of the slowest."""
    return Seen(
        sum(item.requests for item in found),
        sum(item.failed for item in found),
        max((item.p95_ms for item in found if item.requests), default=0.0),
    )


def reason_to_step_back(canary: Seen, others: Seen, limits: Limits) -> str | None:
    """Why the canary loses its traffic; None where it keeps it."""
    if canary.requests < limits.least_requests:
        return None
    if canary.failed_percent > others.failed_percent + limits.errors_percent:
        return (
            f"{canary.failed_percent:.1f} % of its {canary.requests:,} requests failed, "
            f"{others.failed_percent:.1f} % of the others'"
        )
    allowed_ms = limits.slower * max(others.p95_ms, _FLOOR_MS)
    if others.requests >= limits.least_requests and canary.p95_ms > allowed_ms:
        return f"its p95 is {canary.p95_ms:.0f} ms, that of the others {others.p95_ms:.0f} ms"
    return None
