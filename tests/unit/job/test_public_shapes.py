"""Job files in the shapes of public ones: each is understood, or refused by name with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.jobfile import load_job_file

JOBS = Path(__file__).parents[2] / "corpus" / "jobs"
FILES = [
    file
    for file in sorted(JOBS.rglob("*.y*ml"))
    if file.parent.name not in ("env", "refused") and "conda" not in file.name and "component" not in file.name
]
REFUSED = {
    "pipeline": "'pipeline' jobs cannot run yet",
    "schedule": "this is a schedule, not a job",
    "spark": "'spark' jobs cannot run yet",
    "sweep": "'sweep' jobs cannot run yet",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(JOBS)))
def test_a_job_file_is_understood(file: Path) -> None:
    job = load_job_file(file)
    assert job.spec.command and len(job.notices) <= 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_command_job_is_refused_by_name(name: str) -> None:
    with pytest.raises(JobError, match=REFUSED[name]) as caught:
        load_job_file(JOBS / "refused" / f"{name}.yml")
    assert caught.value.hint
