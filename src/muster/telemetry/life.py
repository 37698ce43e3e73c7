"""The states of a run as spans: one for the run, one for each attempt, one for each state of an attempt. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from muster.wire import states


@dataclass(frozen=True)
class Span:
    """A period of a run's life; `key` and `parent` name spans within the run, and the run's own has no parent."""

    key: str
    parent: str
    name: str
    begin: float
    end: float
    attempt: int | None = None


@dataclass(frozen=True)
class Life:
    """The current state of a run, and when it began."""

    status: str = ""
    since: float = 0.0
    attempt: int = 0
    attempt_since: float = 0.0


def enter(life: Life, status: str, at: float, created_at: float) -> tuple[Life, list[Span]]:
    """Record a state; returns the spans that end with it. Recording the same state again changes nothing."""
    if status == life.status:
        return life, []
    ended: list[Span] = []
    was_over, is_over = life.status in states.TERMINAL, status in states.TERMINAL
    begins = life.attempt == 0 or (status == states.QUEUED and life.status not in ("", states.QUEUED))
    if life.status and not was_over:
        ended.append(_span(life, life.status, life.since, at))
    if (begins or is_over) and life.attempt and not was_over:
        ended.append(_span(life, "", life.attempt_since, at))
    if is_over and not was_over:
        ended.append(Span("run", "", "run", created_at, at))
    after = replace(life, status=status, since=at)
    if begins and not is_over:
        after = replace(after, attempt=life.attempt + 1, attempt_since=at)
    return after, ended


def trace_id(workspace: str, run: str) -> bytes:
    """The trace of a run: the same in every process that exports it."""
    return hashlib.sha256(f"{workspace}/{run}".encode()).digest()[:16]


def span_id(run: str, key: str) -> bytes:
    return hashlib.sha256(f"{run}/{key}".encode()).digest()[:8]


def _span(life: Life, status: str, begin: float, end: float) -> Span:
    attempt = f"attempt {max(1, life.attempt)}"
    if not status:
        return Span(attempt, "run", attempt, begin, end, life.attempt)
    return Span(f"{attempt}/{status}/{begin:.6f}", attempt, status.lower(), begin, end, max(1, life.attempt))
