"""`command()`: a job with v2's arguments, and its translation to a job of Muster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from muster.errors import JobError
from muster.job.azure import left_out_notice, settle
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob, as_found
from muster.ml.values import Described, Input, Output, Value, plain, section
from muster.wire.codec import Json

_RESOURCES = (
    *("instance_count", "max_instance_count", "instance_type", "shm_size", "docker_args", "locations"),
    "properties",
)
_KEYS = (
    "name",
    "display_name",
    "experiment_name",
    "description",
    "tags",
    "properties",
    "command",
    "code",
    "environment",
    "compute",
    "environment_variables",
    "distribution",
    "identity",
    "services",
    "additional_includes",
    "queue_settings",
    "is_deterministic",
    "parent_job_name",
    "version",
)
_SECTIONS = (
    "inputs",
    "outputs",
    "resources",
    "limits",
    "queue_settings",
    "environment_variables",
    "tags",
    "properties",
)
"""Parts of a job that can be changed even if they were not given."""
_UNSET = ("services", "retry", "component", "id", "status", "studio_url", "creation_context", "log_files")
"""Other attributes that may be read, and are empty before the job is submitted."""


@dataclass
class PyTorchDistribution:
    """Ranks as PyTorch expects them."""

    process_count_per_instance: int | None = None
    type: str = "pytorch"

    def described(self) -> dict[str, Json]:
        return {"type": self.type, "process_count_per_instance": self.process_count_per_instance}


@dataclass
class MpiDistribution:
    """Ranks started by mpirun."""

    process_count_per_instance: int | None = None
    type: str = "mpi"

    def described(self) -> dict[str, Json]:
        return {"type": self.type, "process_count_per_instance": self.process_count_per_instance}


@dataclass
class TensorFlowDistribution:
    """Tasks described by TF_CONFIG."""

    parameter_server_count: int | None = 0
    worker_count: int | None = None
    type: str = "tensorflow"

    def described(self) -> dict[str, Json]:
        return {
            "type": self.type,
            "parameter_server_count": self.parameter_server_count,
            "worker_count": self.worker_count,
        }


@dataclass
class Command:
    """A command job that can still be changed; `MLClient.jobs.create_or_update` submits it."""

    values: dict[str, Value]
    """The job's values, by the keys of a job file."""
    base_dir: Path = field(default_factory=Path.cwd)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("values", "base_dir"):
            raise AttributeError(name)
        if name in _SECTIONS:
            made = self.values[name] = section(self.values.get(name) or {})
            return made
        if name not in self.values and name not in (*_KEYS, *_UNSET, "type"):
            raise AttributeError(f"a job has no {name!r}; it has {', '.join(sorted({*_KEYS, *_SECTIONS}))}")
        return self.values.get(name, "command" if name == "type" else None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("values", "base_dir"):
            object.__setattr__(self, name, value)
        else:
            self.values[name] = value

    def set_resources(self, **resources: Any) -> None:
        """Change how many of the cluster's resources the job gets."""
        known = plain(self.values.get("resources"))
        self.values["resources"] = {**(known if isinstance(known, dict) else {}), **resources}

    def set_limits(self, *, timeout: int) -> None:
        """Change after how long the job is stopped."""
        self.values["limits"] = {"timeout": timeout}

    def set_queue_settings(self, *, job_tier: str | None = None, priority: str | None = None) -> None:
        """Change how the job is queued."""
        self.values["queue_settings"] = _given({"job_tier": job_tier, "priority": priority})

    def sweep(self, **kwargs: Any) -> Command:
        raise JobError("sweep: Muster has no sweeps yet", "Submit one job for each set of parameters: job(lr=0.1).")

    def dump(self, dest: Any, **kwargs: Any) -> None:
        """Write the job as a job file: to a path, or to an open file."""
        text = yaml.safe_dump(plain(self._said()), sort_keys=False, allow_unicode=True)
        if hasattr(dest, "write"):
            dest.write(text)
        else:
            Path(dest).write_text(text)

    def _said(self) -> dict[str, Value]:
        """The values without sections that were only read and are empty."""
        return {key: value for key, value in self.values.items() if value is not None and not _is_empty(key, value)}

    def __call__(self, **inputs: Any) -> Command:
        """The same job with these inputs, as with a component."""
        declared = self.values.get("inputs")
        known = declared if isinstance(declared, Mapping) else {}
        if unknown := [name for name in inputs if name not in known]:
            hint = f"It has: {', '.join(known) or 'none'}."
            raise JobError(f"the component has no input {unknown[0]!r}", hint)
        given = {name: _filled(known[name], value) for name, value in inputs.items()}
        return Command({**self.values, "inputs": {**known, **given}}, self.base_dir)

    def checked(self) -> LoadedJob:
        """The job as Muster runs it; raises JobError that lists every problem."""
        data = {key: plain(value) for key, value in self._said().items()}
        settled = settle(as_found(data, self.base_dir))
        notice = left_out_notice(settled)
        spec = make_spec(settled.data, "command()")
        return LoadedJob(spec, (notice,) if notice else (), self.base_dir)


class Component(Command):
    """A component file; calling it with inputs gives a job."""


def command(
    *,
    command: str | None = None,
    code: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Value] | None = None,
    outputs: Mapping[str, Value] | None = None,
    timeout: int | None = None,
    **kwargs: Any,
) -> Command:
    """A job from a command line; the keyword arguments are those of v2."""
    wrong = [
        name for name in kwargs if name not in (*_KEYS, *_RESOURCES, "job_tier", "priority", "limits", "resources")
    ]
    if wrong:
        raise JobError(f"command() has no argument {wrong[0]!r}", f"It has: {', '.join([*_KEYS, *_RESOURCES])}.")
    values: dict[str, Value] = {key: kwargs[key] for key in (*_KEYS, "limits") if kwargs.get(key) is not None}
    values |= _given({"command": command, "code": None if code is None else os.fspath(code)})
    values |= {"inputs": dict(inputs or {}), "outputs": dict(outputs or {})}
    described = kwargs.get("resources") or {}
    described = described.described() if isinstance(described, Described) else described
    resources = {**described, **_given({key: kwargs.get(key) for key in _RESOURCES})}
    # The argument `properties` is the job's; those of its resources cannot be given here.
    resources.pop("properties", None)
    if resources:
        values["resources"] = resources
    if timeout is not None:
        values["limits"] = {"timeout": timeout}
    if queue := _given({"job_tier": kwargs.get("job_tier"), "priority": kwargs.get("priority")}):
        values["queue_settings"] = queue
    return Command(values)


def _is_empty(key: str, value: Value) -> bool:
    return key in _SECTIONS and isinstance(value, Mapping) and not value


def _filled(declaration: Value, value: Value) -> Value:
    """An input with its value; a plain value keeps the type and limits of its declaration."""
    if isinstance(value, Input):
        return value
    if isinstance(declaration, Input):
        declaration = declaration.described()
    if not isinstance(declaration, Mapping):
        return value
    if declaration.get("type") in ("string", "integer", "number", "boolean"):
        return {**declaration, "default": value}
    return {**declaration, "path": str(getattr(value, "path", value))}


def _given(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


__all__ = [
    "Command",
    "Input",
    "MpiDistribution",
    "Output",
    "PyTorchDistribution",
    "TensorFlowDistribution",
    "command",
]
