"""How jobs and people name a model: `azureml:NAME:VERSION`, `models:/NAME/VERSION`, `runs:/RUN/PATH`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.errors import JobError
from muster.host.files import is_safe_path
from muster.wire.models import MODEL_TYPES, STAGES

SPELLINGS = (
    "Write NAME, NAME:VERSION, NAME@latest or NAME@ALIAS, azureml:NAME:VERSION, models:/NAME/VERSION, "
    "models:/NAME@ALIAS, or runs:/RUN/PATH."
)
_NAME = r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,254})"
_PLAIN = re.compile(rf"(?:azureml:)?{_NAME}(?::(?P<version>[0-9]{{1,9}})|@(?P<alias>[A-Za-z0-9_.-]+))?")
_MLFLOW = re.compile(rf"models:/{_NAME}(?:/(?P<version>[A-Za-z0-9]+)|@(?P<alias>[A-Za-z0-9_.-]+))")
_LONG = re.compile(
    rf"azureml://(?:.+?/)?models/{_NAME}/(?:versions/(?P<version>[0-9]{{1,9}})|labels/(?P<alias>[A-Za-z0-9_.-]+))"
)
_OF_A_JOB = re.compile(
    r"azureml://(?:.+?/)?jobs/(?P<run>[A-Za-z0-9][A-Za-z0-9_.-]*)/outputs/(?P<output>[^/]+)(?:/paths(?P<path>/.*)?)?/?"
)
_ALL_FILES = ("artifacts", "default")
"""Azure ML's name for the output of a job that declares none: all its files."""
LATEST = "latest"


@dataclass(frozen=True)
class ModelReference:
    """A registered model by a version, an alias or a stage, or its newest version."""

    name: str
    version: int | None = None
    alias: str | None = None
    stage: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"models:/{self.name}/{self.version}"
        return (
            f"models:/{self.name}/{self.stage or LATEST}" if self.alias is None else f"models:/{self.name}@{self.alias}"
        )


@dataclass(frozen=True)
class RunPath:
    """A file or folder that a run keeps."""

    run: str
    path: str

    def __str__(self) -> str:
        return f"runs:/{self.run}/{self.path}"


def parse(text: str) -> ModelReference | RunPath:
    """Parse a reference; raises JobError where it is not one."""
    if text.startswith("runs:/"):
        return _run_path(text)
    if (of_job := _OF_A_JOB.fullmatch(text)) is not None:
        below = "" if of_job["output"] in _ALL_FILES else f"outputs/{of_job['output']}"
        return _run_path(f"runs:/{of_job['run']}/{below}{of_job['path'] or ''}")
    match = _MLFLOW.fullmatch(text) or _LONG.fullmatch(text) or _PLAIN.fullmatch(text)
    if match is None:
        raise JobError(f"{text!r} names no model", SPELLINGS)
    version, alias = match["version"], match["alias"]
    if alias == LATEST or version == LATEST:
        return ModelReference(match["name"])
    if version is None or version.isdecimal():
        return ModelReference(match["name"], None if version is None else int(version), alias)
    stage = next((known for known in STAGES if known.lower() == version.lower()), None)
    if stage is None:
        raise JobError(f"{text!r}: {version!r} is neither a version nor a stage", f"Stages are {', '.join(STAGES)}.")
    return ModelReference(match["name"], stage=stage)


def is_model_input(path: str, kind: str) -> bool:
    """Whether an input of a job names a registered model or files of a run, rather than data."""
    if path.startswith(("models:/", "runs:/")) or _LONG.fullmatch(path) or _OF_A_JOB.fullmatch(path):
        return True
    return kind in MODEL_TYPES and path.startswith("azureml:") and not path.startswith("azureml://")


def _run_path(text: str) -> RunPath:
    run, _, path = text.removeprefix("runs:/").partition("/")
    path = re.sub("/+", "/", path).strip("/")
    if not run or (path and not is_safe_path(path)):
        raise JobError(f"{text!r} names no file of a run", "Write runs:/RUN/PATH, such as runs:/4f2c/outputs/model.")
    return RunPath(run, path)
