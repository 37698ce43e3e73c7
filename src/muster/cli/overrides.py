"""The job of `muster run`: a job file or a script, with options on top. Pure except for checking paths."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from muster.errors import JobError
from muster.job.environmentfile import environment_of, is_environment_file
from muster.job.mlproject import NAME as PROJECT
from muster.job.translation.launchers import NAMES as LAUNCHERS
from muster.wire.codec import Json

JOB_FILE_SUFFIXES = (".yml", ".yaml", ".json")
_ALIKE = 0.75
JOB_FILE = "job file"
CURRENT_PYTHON = "none"
_SCIENTIFIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
"""`1e-3`, which YAML 1.1 parses as text because it has no dot."""


@dataclass(frozen=True)
class Overrides:
    """Options of `muster run` that win over the job file; None: not given."""

    nodes: int | None = None
    procs: int | None = None
    gpus_per_node: float | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int | None = None
    name: str | None = None
    experiment: str | None = None
    compute: str | None = None
    priority: str | None = None
    environment: str | None = None
    """A name, a file, or `none` for the current Python."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values by dotted keys of the job file."""
    tags: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Runs that must have completed first."""


def is_job_file(target: str) -> bool:
    return target.lower().endswith(JOB_FILE_SUFFIXES) or Path(target).name == PROJECT


def script_job(target: str, arguments: Sequence[str]) -> dict[str, Json]:
    """The job of a script, or of a program on the PATH: one process, in the script's folder."""
    path = Path(target)
    if path.is_file():
        return {
            "code": str(path.resolve().parent),
            "command": (*_invocation(path), *arguments),
            "display_name": path.stem,
        }
    if path.is_dir():
        raise JobError(
            f"{target} is a folder; a script, a program or a job file (.yml, .yaml) is needed.",
            _scripts_in(path, ""),
        )
    if os.sep not in target and not target.endswith(".py") and shutil.which(target):
        return {"code": str(Path.cwd()), "command": (target, *arguments), "display_name": target}
    raise JobError(f"there is no file {target!r} in {Path.cwd()}.", _scripts_in(path.parent, path.name))


def _invocation(path: Path) -> tuple[str, ...]:
    if path.suffix == ".py":
        return ("python", path.name)
    if os.access(path, os.X_OK):
        return (f"./{path.name}",)
    if path.suffix == ".sh":
        return ("bash", path.name)
    if path.suffix == ".runconfig":
        raise JobError(
            f"{path} is a run configuration of Azure ML v1, not a job",
            f"Load it in Python, and submit it with a ScriptRunConfig: RunConfiguration.load('.', {path.stem!r}).",
        )
    raise JobError(
        f"{path} is neither a Python script (.py), nor a job file (.yml, .yaml), nor a program that may be executed.",
        f"Make it one with `chmod +x {path}`.",
    )


def _scripts_in(folder: Path, typed: str) -> str:
    if not folder.is_dir():
        return f"The folder {folder} does not exist."
    known = sorted(entry.name for entry in folder.iterdir() if entry.suffix in (".py", *JOB_FILE_SUFFIXES))
    if close := difflib.get_close_matches(typed, [*known, *LAUNCHERS], 1, _ALIKE):
        return f"Did you mean {close[0]}?"
    return f"There are: {', '.join(known[:10])}." if known else "There is no script or job file in that folder."


def _whole(number: float | None) -> float | None:
    """A number of GPUs as in job files: whole ones without a decimal point."""
    return int(number) if number is not None and number == int(number) else number


def with_overrides(job: Mapping[str, Json], overrides: Overrides, source: str = JOB_FILE) -> dict[str, Json]:
    """The job's data with the options of the command line applied."""
    top: dict[str, Json] = {
        "name": overrides.name,
        "experiment_name": overrides.experiment,
        "compute": overrides.compute,
        "after": list(overrides.after) or None,
    }
    changed = {**_with_settings(job, overrides.settings), **_given(top)}
    sections: dict[str, Mapping[str, Json]] = {
        "resources": {"instance_count": overrides.nodes, "gpus_per_node": _whole(overrides.gpus_per_node)},
        "environment_variables": overrides.env,
        "tags": overrides.tags,
        "limits": {"timeout": overrides.timeout_s},
        "queue_settings": {"priority": overrides.priority},
    }
    for name, values in sections.items():
        if given := _given(values):
            changed[name] = {**_part(changed, name), **given}
    if overrides.nodes is not None or overrides.procs is not None:
        changed["distribution"] = _distribution(_part(changed, "distribution"), overrides)
    if overrides.inputs:
        changed["inputs"] = _inputs(_part(changed, "inputs"), overrides.inputs, declared=source == JOB_FILE)
    if overrides.environment is not None:
        changed["environment"] = _environment(overrides.environment)
    return changed


def _environment(text: str) -> Json:
    """The environment for `--environment`; None is the current Python."""
    if text == CURRENT_PYTHON:
        return None
    return environment_of(Path(text)) if is_environment_file(text) or Path(text).is_file() else text


def _with_settings(job: Mapping[str, Json], settings: Mapping[str, str]) -> dict[str, Json]:
    """The job with `--set a.b=VALUE` applied; missing sections are created."""
    changed = dict(job)
    for key, text in settings.items():
        changed = _with_setting(changed, key.split("."), _value(text), f"--set {key}={text}")
    return changed


def _with_setting(data: Mapping[str, Json], keys: Sequence[str], value: Json, option: str) -> dict[str, Json]:
    key, *rest = keys
    if not key:
        raise JobError(f"{option}: a part of the key is empty.", "Write it as --set resources.instance_count=2.")
    if not rest:
        return {**data, key: value}
    inner = data.get(key)
    if inner is not None and not isinstance(inner, Mapping):
        raise JobError(f"{option}: {key!r} is {inner!r} in the job file, and has no keys below it.")
    return {**data, key: _with_setting(inner or {}, rest, value, option)}


def _given(values: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value is not None}


def _part(job: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """A section of the job; empty where it is missing."""
    value = job.get(name)
    return value if isinstance(value, Mapping) else {}


def _distribution(given: Mapping[str, Json], overrides: Overrides) -> dict[str, Json]:
    changed = dict(given or {"type": "pytorch"})
    if str(changed.get("type")).lower() == "tensorflow":
        if overrides.procs is not None:
            raise JobError(
                f"--procs {overrides.procs}: TensorFlow has one worker on each node, so there is nothing to count.",
                "Give --nodes, the number of workers.",
            )
        if changed.get("worker_count") is not None:
            changed["worker_count"] = overrides.nodes
    elif overrides.procs is not None:
        changed["process_count_per_instance"] = overrides.procs
    return changed


def _inputs(known: Mapping[str, Json], given: Mapping[str, str], declared: bool) -> dict[str, Json]:
    changed = dict(known)
    for name, text in given.items():
        if declared and name not in known:
            raise JobError(f"--input {name}={text}: the job file declares no input {name!r}.", _nearest(name, known))
        changed[name] = _declared_input(name, known[name], text) if name in known else _new_input(text)
    return changed


def _declared_input(name: str, declaration: Json, text: str) -> Json:
    if declaration is None:
        return _new_input(text)
    if isinstance(declaration, Mapping):
        kind = declaration.get("type")
        if kind in ("string", "integer", "number", "boolean"):
            return {**declaration, "default": text if kind == "string" else _scalar(text)}
        return {**declaration, "path": _from_here(text)}
    if not isinstance(declaration, bool | int | float):
        return text
    value = _scalar(text)
    fits = isinstance(value, type(declaration)) or (isinstance(declaration, float) and type(value) is int)
    if not fits or isinstance(value, bool) != isinstance(declaration, bool):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(declaration)]
        raise JobError(f"--input {name}={text}: {name!r} is {kind} in the job file ({declaration}), not {text!r}.")
    return float(value) if isinstance(declaration, float) else value


def _new_input(text: str) -> Json:
    path = Path(text)
    if path.exists():
        return {"type": "uri_folder" if path.is_dir() else "uri_file", "path": str(path.resolve())}
    value = _scalar(text)
    # Arguments of a script are passed as typed: 007 and 1_000 are not converted to numbers.
    return value if isinstance(value, bool) or str(value) == text else text


def _from_here(text: str) -> str:
    """A path on the command line is relative to the current folder, not to the job file's."""
    return text if ":" in text.split("/")[0] else str(Path(text).absolute())


def _value(text: str) -> Json:
    """Parse a value as in the job file."""
    try:
        value: Json = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | str | list | dict | None) else text


def _scalar(text: str) -> bool | int | float | str:
    if _SCIENTIFIC.fullmatch(text):
        return float(text)
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _nearest(name: str, known: Mapping[str, Json]) -> str:
    if not known:
        return "It declares none."
    close = difflib.get_close_matches(name, known, n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Declared: {', '.join(known)}."


def parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` options."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise JobError(f"{option} {text}: give it as NAME=VALUE.")
        pairs[name.strip()] = value
    return pairs


def parse_env(texts: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Parse `NAME=VALUE`, or `NAME` alone for its value in this shell."""
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in environment:
            raise JobError(f"--env {name}: there is no {name} in this shell.", f"Give a value: --env {name}=VALUE.")
        variables[name] = value if equals else environment[name]
    return variables
