"""MLflow's `MLproject` as a job: its main entry point, with the parameters as inputs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.errors import JobError
from muster.wire.codec import Json

NAME = "MLproject"
_MAIN = "main"
_TYPES = {"float": "number", "string": "string", "uri": "string"}
_BRACES = re.compile(r"\{\{|\}\}|(?<!\$)\{(\w+)\}")
_ENVIRONMENTS = ("conda_env", "python_env", "docker_env")


def is_ml_project(data: Mapping[str, Json]) -> bool:
    """Whether a file is an MLflow project."""
    return isinstance(data.get("entry_points"), Mapping) and "command" not in data


def translate(data: Mapping[str, Json]) -> dict[str, Json]:
    """The job of a project; raises JobError for anything without a counterpart."""
    name, entry = _entry(data)
    given = entry.get("parameters")
    parameters = given if isinstance(given, Mapping) else {}
    command = entry.get("command")
    if not isinstance(command, str):
        raise JobError(f"entry_points.{name} has no command", "Add it.")
    job: dict[str, Json] = {
        "code": ".",
        "command": _BRACES.sub(lambda match: _filled(match, parameters, name), command),
        "inputs": {key: _input(f"{name}.parameters.{key}", item) for key, item in parameters.items()},
        "display_name": data.get("name"),
        "environment": _environment(data),
    }
    return {key: value for key, value in job.items() if value is not None}


def _entry(data: Mapping[str, Json]) -> tuple[str, Mapping[str, Json]]:
    points = data["entry_points"]
    assert isinstance(points, Mapping)
    name = _MAIN if _MAIN in points or len(points) != 1 else next(iter(points))
    entry = points.get(name)
    if not isinstance(entry, Mapping):
        known = ", ".join(points) or "none"
        raise JobError(
            f"there is no entry point '{_MAIN}'; there are: {known}",
            f"Call the one that is to run '{_MAIN}', or run its script: `muster run SCRIPT.py -- ARGUMENTS`.",
        )
    return name, entry


def _filled(match: re.Match[str], parameters: Mapping[str, Json], entry: str) -> str:
    name = match[1]
    if name is None:
        return match[0][0]
    if name not in parameters:
        known = ", ".join(parameters) or "none"
        raise JobError(
            f"the command of entry_points.{entry} has {{{name}}}, which is no parameter; there are: {known}",
            f"Declare it: `parameters: {{{name}: string}}`.",
        )
    return f"${{{{inputs.{name}}}}}"


def _input(key: str, item: Json) -> Json:
    """`alpha: float`, or `alpha: {type: float, default: 0.1}`."""
    described = item if isinstance(item, Mapping) else {"type": item}
    kind, default = described.get("type", "string"), described.get("default")
    if kind == "path":
        # A file or a folder, whichever exists.
        return {"path": default} if default is not None else {"type": "uri_file"}
    if kind not in _TYPES:
        allowed = ", ".join([*_TYPES, "path"])
        raise JobError(f"entry_points.{key}: {kind!r} is not a type of MLflow's", f"Types are {allowed}.")
    text = str(default) if _TYPES[str(kind)] == "string" and default is not None else default
    return {"type": _TYPES[str(kind)], **({} if text is None else {"default": text})}


def _environment(data: Mapping[str, Json]) -> Json:
    found = [key for key in _ENVIRONMENTS if data.get(key) is not None]
    if not found:
        return None
    value = data[found[0]]
    return f"file:{value}" if isinstance(value, str) else value
