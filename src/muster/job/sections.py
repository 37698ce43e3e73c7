"""Which keys a job file may have where: the models' own, and those of Azure ML that mean nothing here."""

from __future__ import annotations

from pydantic import BaseModel

from muster.job.parts import (
    Build,
    EnvironmentSpec,
    Input,
    Limits,
    Mpi,
    Output,
    PyTorch,
    QueueSettings,
    Resources,
    Retry,
    TensorFlow,
)
from muster.job.refusal import Path
from muster.job.spec import JobSpec

DISTRIBUTIONS: dict[str, type[BaseModel]] = {"pytorch": PyTorch, "mpi": Mpi, "tensorflow": TensorFlow}
KINDS_THAT_CANNOT_RUN = ("sweep", "pipeline", "automl", "spark", "parallel", "import", "finetuning", "distillation")

_SECTIONS: dict[Path, tuple[type[BaseModel], ...]] = {
    (): (JobSpec,),
    ("resources",): (Resources,),
    ("distribution",): (PyTorch, Mpi, TensorFlow),
    ("inputs", "*"): (Input,),
    ("outputs", "*"): (Output,),
    ("environment",): (EnvironmentSpec,),
    ("environment", "build"): (Build,),
    ("limits",): (Limits,),
    ("queue_settings",): (QueueSettings,),
    ("retry",): (Retry,),
}

_IGNORED: dict[Path, dict[str, str]] = {
    (): {
        "$schema": "names an editor's schema",
        "services": "describes interactive services of Azure",
        "identity": "names an identity of Azure",
        "properties": "holds properties of Azure",
        "creation_context": "is a record of Azure",
        "id": "is an identifier of Azure",
        "status": "is a record of Azure",
        "parent_job_name": "names a job of Azure",
        "resource_group": "names a resource group of Azure",
        "resourceGroup": "names a resource group of Azure",
        "parameters": "is a record of Azure",
        "log_files": "is a record of Azure",
    },
    ("resources",): {
        "instance_type": "names a machine size of Azure; the cluster decides which machines it has",
        "properties": "holds properties of Azure",
        "locations": "names regions of Azure",
        "max_instance_count": "limits nodes that Azure adds to a running job",
    },
    ("queue_settings",): {"job_tier": "is a price tier of Azure"},
    ("inputs", "*"): {"description": "is free text"},
    ("outputs", "*"): {
        "description": "is free text",
        "name": "would register the output in Azure; it is kept with the run",
        "version": "would register the output in Azure; it is kept with the run",
    },
    ("environment",): {
        "$schema": "names an editor's schema",
        "version": "is a version in Azure's registry",
        "description": "is free text",
        "tags": "are labels in Azure",
        "properties": "holds properties of Azure",
        "os_type": "is always linux",
        "inference_config": "is for Azure's endpoints",
    },
}

_SWEEP = "belongs to a sweep, and sweeps cannot run yet"
_PIPELINE = "belongs to a pipeline, and pipelines cannot run yet"
_FOREIGN = {
    "search_space": _SWEEP,
    "objective": _SWEEP,
    "sampling_algorithm": _SWEEP,
    "early_termination": _SWEEP,
    "trial": _SWEEP,
    "jobs": _PIPELINE,
    "settings": _PIPELINE,
    "component": "names a component, and jobs made from components cannot run yet",
}


def section_of(path: Path) -> Path:
    """The section that a path lies in, with `*` for names that the user chose."""
    if len(path) >= 2 and path[0] in ("inputs", "outputs"):
        return (path[0], "*", *path[2:])
    return path


def keys_allowed_at(path: Path, distribution: str = "") -> list[str]:
    """Every key that the section at a path knows."""
    models = _SECTIONS.get(section_of(path), ())
    if path == ("distribution",) and distribution in DISTRIBUTIONS:
        models = (DISTRIBUTIONS[distribution],)
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def ignored_reason(path: Path) -> str | None:
    """Why a key is accepted and then ignored; None where it is not."""
    reason = _IGNORED.get(section_of(path[:-1]), {}).get(str(path[-1]))
    return f"{reason}; it has no meaning here and is ignored" if reason else None


def foreign_key_reason(path: Path) -> str | None:
    """Why a key of another kind of job is refused."""
    return _FOREIGN.get(str(path[0])) if len(path) == 1 else None


def ignored_keys() -> list[tuple[str, str]]:
    """Every key that is accepted and ignored, as a person writes it, and why."""
    return [
        (".".join((*(str(part) for part in section), key)).replace("*", "NAME"), reason)
        for section, keys in _IGNORED.items()
        for key, reason in keys.items()
    ]
