"""Whether a running run is still active. Pure."""

from __future__ import annotations

from muster.cli.text import duration
from muster.defaults import SILENCE_S


def silence(moved_at: float | None, now: float) -> str:
    """Such as `no output or metric for 4m 10s`; empty where there was some recently, or it is unknown."""
    if moved_at is None or now - moved_at < SILENCE_S:
        return ""
    return f"no output or metric for {duration(now - moved_at)}"


def silent_for(moved_at: float | None, now: float) -> str:
    """The same for a narrow column, with the time first: `4m 10s without output or metric`."""
    text = silence(moved_at, now)
    return f"{duration(now - moved_at)} without output or metric" if text and moved_at is not None else ""
