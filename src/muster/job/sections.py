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
    Service,
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
    ("services", "*"): (Service,),
}

_HARMLESS: dict[Path, tuple[str, ...]] = {
    (): (
        "$schema",
        "version",
        "is_deterministic",
        "creation_context",
        "id",
        "status",
        "parent_job_name",
        "resource_group",
        "resourceGroup",
        "parameters",
        "log_files",
    ),
    ("queue_settings",): ("job_tier",),
    ("inputs", "*"): ("description", "title"),
    ("outputs", "*"): ("description", "title"),
    ("services", "*"): ("endpoint", "status", "error", "properties"),
    ("environment",): ("$schema", "version", "description", "tags", "properties", "os_type"),
}
"""Taken in silence: they describe, or are records that Azure ML writes itself."""

_IGNORED: dict[Path, dict[str, str]] = {
    (): {"identity": "who the job is in Azure; here a job has the rights of its run"},
    ("resources",): {
        "instance_type": "a machine size of Azure; the cluster decides which machines it has",
        "properties": "settings of Azure's own clusters",
        "locations": "regions of Azure",
        "max_instance_count": "a limit of nodes that Azure adds to a running job",
    },
    ("services", "*"): {"nodes": "more nodes than the first; services are on the node of rank 0"},
    ("environment",): {"inference_config": "for endpoints"},
}
"""Without a meaning here: one notice names them."""

_SWEEP = "belongs to a sweep, and sweeps cannot run yet"
_PIPELINE = "belongs to a pipeline, and pipelines cannot run yet"
_ON_THE_NODE = "fixes where the data lies on the node, which Muster decides"
_READ_PATH = "Remove it, and read the path from ${{inputs.NAME}}, ${{outputs.NAME}} or MUSTER_INPUT_NAME."
_IN_A_PIPELINE = "concerns the next step of a pipeline"
_REMOVE = "Remove the key."
_REFUSED: dict[Path, dict[str, tuple[str, str]]] = {
    (): {
        "search_space": (_SWEEP, _REMOVE),
        "objective": (_SWEEP, _REMOVE),
        "sampling_algorithm": (_SWEEP, _REMOVE),
        "early_termination": (_SWEEP, _REMOVE),
        "trial": (_SWEEP, _REMOVE),
        "jobs": (_PIPELINE, _REMOVE),
        "settings": (_PIPELINE, _REMOVE),
        "component": (
            "names a component, which belongs to a pipeline",
            "Run the component itself: `muster run COMPONENT.yml --input NAME=VALUE`.",
        ),
    },
    ("inputs", "*"): {"path_on_compute": (_ON_THE_NODE, _READ_PATH)},
    ("outputs", "*"): {
        "path_on_compute": (_ON_THE_NODE, _READ_PATH),
        "early_available": (_IN_A_PIPELINE, _REMOVE),
        "is_control": (_IN_A_PIPELINE, _REMOVE),
    },
}
"""Refused by name, with what to do."""

REFUSED_DISTRIBUTIONS = {
    "ray": "Start Ray by the command itself, once on each node: distribution {type: pytorch} gives NODE_RANK and "
    "MASTER_ADDR for `ray start`.",
}
REFUSED_SERVICES = {
    "vs_code": "Use `type: ssh`, and let the editor connect through `muster forward`.",
}


def section_of(path: Path) -> Path:
    """The section that a path lies in, with `*` for names that the user chose."""
    if len(path) >= 2 and path[0] in ("inputs", "outputs", "services"):
        return (path[0], "*", *path[2:])
    return path


def keys_allowed_at(path: Path, distribution: str = "") -> list[str]:
    """Every key that the section at a path knows."""
    models = _SECTIONS.get(section_of(path), ())
    if path == ("distribution",) and distribution in DISTRIBUTIONS:
        models = (DISTRIBUTIONS[distribution],)
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def is_harmless(path: Path) -> bool:
    """Whether a key is taken in silence."""
    return str(path[-1]) in _HARMLESS.get(section_of(path[:-1]), ())


def ignored_reason(path: Path) -> str | None:
    """What a key that has no meaning here is for; None where it has one."""
    return _IGNORED.get(section_of(path[:-1]), {}).get(str(path[-1]))


def refused_key(path: Path) -> tuple[str, str] | None:
    """Why a key of Azure ML's is refused, and what to do."""
    return _REFUSED.get(section_of(path[:-1]), {}).get(str(path[-1]))


def harmless_keys() -> list[str]:
    """Every key that is taken in silence, as a person writes it."""
    return [_written(section, key) for section, keys in _HARMLESS.items() for key in keys]


def ignored_keys() -> list[tuple[str, str]]:
    """Every key that is left out with a notice, as a person writes it, and what it is for."""
    return [(_written(section, key), reason) for section, keys in _IGNORED.items() for key, reason in keys.items()]


def refused_keys() -> list[tuple[str, str, str]]:
    """Every key that is refused by name: why, and what to do."""
    return [(_written(section, key), *said) for section, keys in _REFUSED.items() for key, said in keys.items()]


def _written(section: Path, key: str) -> str:
    return ".".join((*(str(part) for part in section), key)).replace("*", "NAME")
