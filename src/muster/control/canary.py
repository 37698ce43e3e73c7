"""Whether a deployment that gets some of the traffic for a try goes on with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FLOOR_MS = 5.0
"""Below that nobody feels a difference: times of a few milliseconds double by chance."""


@dataclass(frozen=True)
class Limits:
    """How much worse than the others it may do."""

    errors_percent: float = 2.0
    """So many more requests of a hundred may fail."""
    slower: float = 2.0
    """So many times the others' 95th percentile may its own be."""
    least_requests: int = 20
    """Before there are so many, nothing is said."""


@dataclass(frozen=True)
class Seen:
    """What came of requests since the try began."""

    requests: int = 0
    failed: int = 0
    p95_ms: float = 0.0
    """Of the last minute."""

    @property
    def failed_percent(self) -> float:
        return 100 * self.failed / self.requests if self.requests else 0.0


def since(now: Seen, before: Seen) -> Seen:
    """What is new since then; all of it where the process that counts has started again meanwhile."""
    if now.requests < before.requests or now.failed < before.failed:
        return now
    return Seen(now.requests - before.requests, now.failed - before.failed, now.p95_ms)


def together(found: list[Seen]) -> Seen:
    """Several deployments as one; the slowest of them stands for all."""
    return Seen(
        sum(item.requests for item in found),
        sum(item.failed for item in found),
        max((item.p95_ms for item in found if item.requests), default=0.0),
    )


def reason_to_step_back(canary: Seen, others: Seen, limits: Limits) -> str | None:
    """Why the traffic goes back to the others; None where it stays."""
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
