"""Packages that Muster's own commands need in a job's environment. Pure."""

from __future__ import annotations

from muster.job.spec import JobSpec

_SERVE = "muster.scoring.serve"
_TO_ANSWER = ("uvicorn", "httptools", "uvloop", "aiohttp")


def needs_of(spec: JobSpec) -> tuple[str, ...]:
    """Packages that a job needs beyond its own list: replicas answer requests; files for Azure ML do not list that."""
    return _TO_ANSWER if not isinstance(spec.command, str) and _SERVE in (spec.command or ()) else ()
