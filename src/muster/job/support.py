"""What the vocabulary knows and this job does not use, or this version does not run: said before anything starts."""

from __future__ import annotations

from muster.job.parts import EnvironmentSpec
from muster.job.spec import JobSpec


def check_supported(spec: JobSpec) -> list[str]:
    """Notices about what has no effect."""
    if spec.resources.docker_args and not _may_be_container(spec):
        return ["resources.docker_args is for jobs in containers; this one runs without, and it is ignored"]
    return []


def _may_be_container(spec: JobSpec) -> bool:
    environment = spec.environment
    # A name may stand for a registered image.
    if isinstance(environment, EnvironmentSpec):
        return bool(environment.image or environment.build or environment.is_a_name)
    return environment is not None
