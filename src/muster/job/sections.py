"""The keys allowed in each section of a job file: the models' own, and those of Azure ML that mean nothing here."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from muster.job.parts import (
    Build,
    EnvironmentSpec,
    Input,
    Limits,
    Mpi,
    Notify,
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
from muster.wire.codec import Json

DISTRIBUTIONS: dict[str, type[BaseModel]] = {"pytorch": PyTorch, "mpi": Mpi, "tensorflow": TensorFlow}
_ONE_BY_ONE = "Write each step as a command job, and give it what the step before wrote: --input NAME=PATH."
KINDS_THAT_CANNOT_RUN = {
    "sweep": "Write a command job of its `trial`, and run it once for each set of values: --input NAME=VALUE.",
    "pipeline": _ONE_BY_ONE,
    "parallel": _ONE_BY_ONE,
    "automl": "Write a command job that trains a model of your choice.",
    "spark": "Write a command job: `type: command`, with a `command` that starts Spark itself.",
    "import": "Give the data to a command job as an input.",
    "finetuning": "Write a command job that does the training itself.",
    "distillation": "Write a command job that does the training itself.",
}
"""Kinds of jobs that Azure ML supports and Muster cannot run yet, with an alternative."""

FILES_THAT_ARE_NO_JOBS = {
    "schedule": ("a schedule", "Let cron start the job: `muster run JOB.yml --detach`."),
    "environment": ("an environment", "Register it: `muster env register FILE`."),
    "compute": ("a compute target", "Make the cluster: `muster cluster create --file FILE`."),
    "data": ("a data asset", "Make it: `muster data create --file FILE`."),
    "datastore": ("a datastore", "Make it: `muster datastore create --file FILE`."),
    "model": ("a model", "Register it: `muster model register --file FILE`."),
    "onlineendpoint": ("an endpoint", "Make it: `muster endpoint create --file FILE`."),
    "onlinedeployment": ("a deployment", "Deploy it: `muster endpoint deploy --file FILE`."),
    "batchendpoint": ("a batch endpoint", "Make it: `muster batch-endpoint create --file FILE`."),
    "batchdeployment": ("a batch deployment", "Deploy it: `muster batch-endpoint deploy --file FILE`."),
    "deployment": ("a deployment", "Deploy it: `muster endpoint deploy --file FILE`."),
    "workspace": ("a workspace", "Make one here: `muster init`."),
}
"""Files of Azure ML that may be mistaken for a job, with what to do with each."""
_PACKAGES = ("a list of packages", "Give it to a script or a job: `muster run train.py --environment FILE`.")

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
    ("notify", "*"): (Notify,),
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
"""Accepted silently: descriptions, or records that Azure ML writes itself."""

_ON_THE_NODE = "where the data is on the node, which Muster decides: scripts get the path"
_IGNORED: dict[Path, dict[str, str]] = {
    (): {"identity": "who the job is in Azure; here a job has the rights of its run"},
    ("resources",): {
        "instance_type": "a machine size of Azure; the cluster decides which machines it has",
        "properties": "settings of Azure's own clusters",
        "locations": "regions of Azure",
        "max_instance_count": "a limit of nodes that Azure adds to a running job",
    },
    ("inputs", "*"): {"path_on_compute": _ON_THE_NODE},
    ("outputs", "*"): {"path_on_compute": _ON_THE_NODE},
    ("services", "*"): {"nodes": "more nodes than the first; services are on the node of rank 0"},
    ("environment",): {"inference_config": "for endpoints"},
}
"""Without a meaning here: one notice lists them."""

_SWEEP = "belongs to a sweep, and sweeps cannot run yet"
_PIPELINE = "belongs to a pipeline, and pipelines cannot run yet"
_IN_THE_COMMAND = "is in the command, and Muster decides where data is on the node"
_READ_PATH = "Write ${{inputs.NAME}} or ${{outputs.NAME}} in the command instead, and remove the key."
_IN_A_PIPELINE = "concerns the next step of a pipeline"
_REMOVE = "Remove the key."
_REFUSED: dict[Path, dict[str, tuple[str, str]]] = {
    (): {
        "search_space": (_SWEEP, _REMOVE),
        "objective": (_SWEEP, _REMOVE),
        "sampling_algorithm": (_SWEEP, _REMOVE),
        "early_termination": (_SWEEP, _REMOVE),
        "trial": (_SWEEP, KINDS_THAT_CANNOT_RUN["sweep"]),
        "jobs": (_PIPELINE, _ONE_BY_ONE),
        "settings": (_PIPELINE, _REMOVE),
        "component": (
            "names a component, which belongs to a pipeline",
            "Run the component itself: `muster run COMPONENT.yml --input NAME=VALUE`.",
        ),
    },
    ("inputs", "*"): {"path_on_compute": (_IN_THE_COMMAND, _READ_PATH)},
    ("outputs", "*"): {
        "path_on_compute": (_IN_THE_COMMAND, _READ_PATH),
        "early_available": (_IN_A_PIPELINE, _REMOVE),
        "is_control": (_IN_A_PIPELINE, _REMOVE),
    },
}
"""Refused by name, with an alternative."""

REFUSED_DISTRIBUTIONS = {
    "ray": "Start Ray by the command itself, once on each node: distribution {type: pytorch} gives NODE_RANK and "
    "MASTER_ADDR for `ray start`.",
}
SERVICES_LEFT_OUT = {
    "vs_code": "an editor that Azure starts; with `type: ssh` your own connects through `muster forward`",
    "vscode": "an editor that Azure starts; with `type: ssh` your own connects through `muster forward`",
}
"""Kinds of services that have no meaning here."""

CONTAINER_ARGS_LEFT_OUT = {
    "--ipc": True,
    "--shm-size": True,
    "--gpus": True,
    "--runtime": True,
    "--network": True,
    "--net": True,
    "--device": True,
    "--cap-add": True,
    "--name": True,
    "--privileged": False,
    "--init": False,
    "--rm": False,
    "-i": False,
    "-t": False,
    "-it": False,
}
"""Arguments of containers that Muster decides itself, and whether each takes a value."""


def no_job(data: Mapping[str, Json]) -> tuple[str, str] | None:
    """The kind of a file that is not a job, and what to do with it; None for all others."""
    schema = data.get("$schema")
    name = schema.rpartition("/")[2].lower() if isinstance(schema, str) else ""
    if "command" in data or "job" in name or "component" in name:
        return None
    if "create_job" in data or "trigger" in data:
        return FILES_THAT_ARE_NO_JOBS["schedule"]
    if "dependencies" in data:
        return _PACKAGES
    found = [kind for kind in FILES_THAT_ARE_NO_JOBS if kind in name]
    return FILES_THAT_ARE_NO_JOBS[max(found, key=len)] if found else None


def section_of(path: Path) -> Path:
    """The section of a path, with `*` for names that the user chose."""
    if len(path) >= 2 and path[0] in ("inputs", "outputs", "services"):
        return (path[0], "*", *path[2:])
    if len(path) >= 2 and path[0] == "notify" and isinstance(path[1], int):
        return (path[0], "*", *path[2:])
    return path


def keys_allowed_at(path: Path, distribution: str = "") -> list[str]:
    """Every key that is allowed in the section at a path."""
    models = _SECTIONS.get(section_of(path), ())
    if path == ("distribution",) and distribution in DISTRIBUTIONS:
        models = (DISTRIBUTIONS[distribution],)
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def is_harmless(path: Path) -> bool:
    """Whether a key is accepted silently."""
    return str(path[-1]) in _HARMLESS.get(section_of(path[:-1]), ())


def ignored_reason(path: Path) -> str | None:
    """The purpose of a key that has no meaning here; None if it has one."""
    return _IGNORED.get(section_of(path[:-1]), {}).get(str(path[-1]))


def refused_key(path: Path) -> tuple[str, str] | None:
    """Why a key of Azure ML's is refused, and an alternative."""
    return _REFUSED.get(section_of(path[:-1]), {}).get(str(path[-1]))


def harmless_keys() -> list[str]:
    """Every key that is accepted silently, as written by people."""
    return [_written(section, key) for section, keys in _HARMLESS.items() for key in keys]


def ignored_keys() -> list[tuple[str, str]]:
    """Every key that is left out with a notice, as written by people, with its purpose."""
    keys = [(_written(section, key), reason) for section, keys in _IGNORED.items() for key, reason in keys.items()]
    services = [(f"services.NAME.type: {kind}", reason) for kind, reason in SERVICES_LEFT_OUT.items()]
    words = ", ".join(name for name in CONTAINER_ARGS_LEFT_OUT if name != "--shm-size")
    return [*keys, *services, ("resources.docker_args", f"{words}: Muster itself decides that for its containers")]


def refused_keys() -> list[tuple[str, str, str]]:
    """Every key that is refused by name: the reason, and an alternative."""
    return [(_written(section, key), *said) for section, keys in _REFUSED.items() for key, said in keys.items()]


def _written(section: Path, key: str) -> str:
    return ".".join((*(str(part) for part in section), key)).replace("*", "NAME")
