"""The names of jobs in Slurm: they show which attempts they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.engines.slurm.parsing import Job

_NAME = re.compile(r"(.+\.\d+)@muster-([^-@]+)")
_OLD_NAME = re.compile(r"muster-([^-]+-.+\.\d+)")


def job_name(allocation_id: str) -> str:
    """Says which attempt a job is, so that it is found again whatever happened to whoever submitted it.

    The run comes first, because `squeue` shows eight characters; the workspace last, because queues are shared.
    """
    workspace, _, attempt = allocation_id.partition("-")
    return f"{attempt}@muster-{workspace}"


def allocation_of(name: str) -> str | None:
    """The allocation's id in a job's name, also in the form of earlier versions; None: not Muster's."""
    if match := _NAME.fullmatch(name):
        return f"{match[2]}-{match[1]}"
    match = _OLD_NAME.fullmatch(name)
    return match[1] if match else None


def doubles(jobs: Sequence[Job]) -> list[Job]:
    """Jobs of a run that has a later one: only the last is needed."""
    last: dict[str, Job] = {}
    extra = []
    for job in sorted((job for job in jobs if not job.is_over), key=lambda item: attempt_of(of_job(item))):
        stem = of_job(job).rpartition(".")[0]
        if stem in last:
            extra.append(last[stem])
        last[stem] = job
    return extra


def of_job(job: Job) -> str:
    """The id of the allocation that a job was submitted for."""
    return allocation_of(job.name) or ""


def attempt_of(identifier: str) -> int:
    return int(identifier.rpartition(".")[2])
