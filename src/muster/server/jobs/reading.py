"""Parses a job file that was sent as text. No file of this machine is read."""

from __future__ import annotations

from pathlib import Path

from muster.errors import JobError
from muster.job.environmentfile import is_environment_file
from muster.job.jobfile import read_job_text
from muster.wire.portal.jobs import JobRead, JobText

_NOWHERE = Path("/nonexistent")


def read(given: JobText) -> JobRead:
    """The checked job; raises JobError with the line and the key of every problem."""
    document = read_job_text(given.text, given.source, _NOWHERE)
    environment = document.data.get("environment")
    if isinstance(environment, str) and "://" not in environment and is_environment_file(environment):
        raise JobError(
            f"{given.source}: the environment is in a separate file ({environment}), which is not here",
            "Write its packages below `environment`, name a registered one, or use `muster run`.",
        )
    job = document.checked(document.data)
    return JobRead(job.spec.model_dump(mode="json"), job.notices, job.spec.code)
