"""What the vocabulary knows and this version does not run: refused with a reason, before anything starts."""

from __future__ import annotations

import re

from muster.job import rules
from muster.job.explain import job_error
from muster.job.refusal import Problem, show
from muster.job.spec import EnvironmentSpec, Input, JobSpec

_CURATED = re.compile(
    r"azureml://registries/.+"
    r"|(azureml-|acpt-|pytorch|tensorflow|tf[0-9]|keras|sklearn|scikit|lightgbm|minimal|responsibleai|openmpi).*",
    re.IGNORECASE,
)
_CURATED_IN_WORDS = "AzureML-…, ACPT-…, pytorch…, tensorflow…, keras…, sklearn…, lightgbm…, openmpi…"


def check_supported(spec: JobSpec) -> list[str]:
    """Refuse what cannot run yet (JobError); return notices."""
    problems = [*_environment_problems(spec), *_data_problems(spec)]
    if problems:
        raise job_error(problems, lambda problem: "")
    name = _environment_name(spec)
    return [f"environment {name}: stands for the Python that submitted the job"] if name else []


def _environment_name(spec: JobSpec) -> str | None:
    environment = spec.environment
    return environment.name if isinstance(environment, EnvironmentSpec) else environment


def _environment_problems(spec: JobSpec) -> list[Problem]:
    environment = spec.environment
    if isinstance(environment, EnvironmentSpec):
        given = [key for key in ("image", "build", "conda_file", "python", "pip") if getattr(environment, key)]
        if given:
            return [
                Problem(
                    ("environment", given[0]),
                    "environments cannot be built yet",
                    "Leave `environment` out and submit from a Python that has the packages.",
                )
            ]
    name = _environment_name(spec)
    if name is None or _CURATED.fullmatch(name):
        return []
    return [
        Problem(
            ("environment",),
            f"there is no environment {show(name)}; known are the curated names: {_CURATED_IN_WORDS}",
            "Leave `environment` out to run in the Python that submits.",
        )
    ]


def _data_problems(spec: JobSpec) -> list[Problem]:
    problems = [
        Problem(
            ("inputs", name, "path"),
            f"{show(value.path)} is an address, and only local files and folders can be read yet",
            "Download it, and give the local path.",
        )
        for name, value in spec.inputs.items()
        if isinstance(value, Input) and value.path and value.mode != "direct" and rules.is_address(value.path)
    ]
    problems += [
        Problem(
            ("outputs", name, "path"),
            f"{show(value.path)} cannot be written to yet: outputs are kept with the run, under outputs/{name}",
            "Leave `path` out, and download the output after the run.",
        )
        for name, value in spec.outputs.items()
        if value.path is not None
    ]
    return problems
