"""Run configurations in v1's files: `.azureml/NAME.runconfig`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from muster.errors import JobError, NotFound
from muster.job.assetfile import read_plain_file
from muster.sdk.conda import CondaDependencies
from muster.sdk.environment import Environment
from muster.sdk.notices import tell
from muster.wire.codec import Json

if TYPE_CHECKING:
    from muster.sdk.runconfig import RunConfiguration

_FOLDERS = (".azureml", "aml_config")
_SUFFIX = ".runconfig"
_PLAIN = ("script", "command", "arguments", "framework", "communicator", "node_count", "max_run_duration_seconds")
_SECTIONS = {
    "mpi": ("process_count_per_node", "node_count"),
    "pytorch": ("communication_backend", "process_count", "node_count"),
    "tensorflow": ("worker_count", "parameter_server_count"),
    "docker": ("use_docker", "shared_volumes", "arguments", "shm_size"),
}
_PYTHON = ("user_managed_dependencies", "interpreter_path", "conda_dependencies_file", "base_conda_environment")
_IMAGE = ("enabled", "base_image", "base_dockerfile", "shm_size", "arguments", "shared_volumes", "gpu_support")
_DATA = ("data", "output_data", "data_references")


def save(config: RunConfiguration, path: str | Path | None, name: str | None) -> Path:
    """Write a configuration; returns its file: PATH, or NAME.runconfig in `.azureml` below PATH."""
    file = _file_to_write(Path(path or "."), name)
    file.parent.mkdir(parents=True, exist_ok=True)
    target = config.target
    document = {
        **{_camel(key): _listed(getattr(config, key)) for key in _PLAIN if getattr(config, key) is not None},
        "target": target if isinstance(target, str) else target.name,
        "environment": _environment_document(config),
    }
    for section, keys in _SECTIONS.items():
        part = getattr(config, section)
        document[section] = {_camel(key): getattr(part, key) for key in keys}
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return file


def load(config: RunConfiguration, path: str | Path, name: str | None) -> None:
    """Fill a configuration from a file, or from NAME.runconfig below a folder."""
    file = _file_to_read(Path(path), name)
    values = _snake(read_plain_file(file, "run configuration"))
    _fill(config, values, _PLAIN)
    if isinstance(config.arguments, str):
        config.arguments = config.arguments.split()
    config.target = str(values.get("target") or config.target)
    for section, keys in _SECTIONS.items():
        _fill(getattr(config, section), _section(values, section), keys)
    described = _section(values, "environment")
    if described:
        config.environment = environment_of(described, file.parent)
    variables = _section(values, "environment_variables") or _section(described, "environment_variables")
    config.environment_variables = {key: str(value) for key, value in variables.items()}
    if left := [key for key in _DATA if values.get(key)]:
        tell(f"{file}: {', '.join(left)}: data of a file is left out; give it to `arguments` in the script")


def environment_of(values: Mapping[str, Json], folder: Path) -> Environment:
    """An environment in v1's form; the path of its conda file is relative to the folder or its parent."""
    python, docker = _section(values, "python"), _section(values, "docker")
    made = Environment(str(values.get("name") or "default"))
    made.version = None if values.get("version") is None else str(values["version"])
    made.environment_variables = {k: str(v) for k, v in _section(values, "environment_variables").items()}
    _fill(made.python, python, _PYTHON)
    if isinstance(packages := python.get("conda_dependencies"), Mapping):
        made.python.conda_dependencies = CondaDependencies.of(packages)
    if file := made.python.conda_dependencies_file:
        made.python.conda_dependencies_file = str(_conda_file(file, folder))
    _fill(made.docker, docker, _IMAGE)
    return made


def _environment_document(config: RunConfiguration) -> dict[str, Json]:
    environment = config.environment
    if not isinstance(environment, Environment):
        return {"name": environment or "default", "environmentVariables": {**config.environment_variables}}
    python, docker = environment.python, environment.docker
    return {
        "name": environment.name,
        "version": environment.version,
        "environmentVariables": {**environment.environment_variables, **config.environment_variables},
        "python": {
            **{_camel(key): getattr(python, key) for key in _PYTHON if key != "conda_dependencies_file"},
            "condaDependencies": python.packages().as_dict(),
        },
        "docker": {_camel(key): getattr(docker, key) for key in _IMAGE},
    }


def _file_to_write(path: Path, name: str | None) -> Path:
    if name is None and path.suffix == _SUFFIX:
        return path
    if name is None:
        raise JobError("the configuration has no name", "Give save(path, name='mine'), or a path that ends so.")
    return path / _FOLDERS[0] / f"{name.removesuffix(_SUFFIX)}{_SUFFIX}"


def _file_to_read(path: Path, name: str | None) -> Path:
    if path.is_file():
        return path
    wanted = f"{(name or 'local').removesuffix(_SUFFIX)}{_SUFFIX}"
    places = [path / wanted, *(path / folder / wanted for folder in _FOLDERS)]
    for place in places:
        if place.is_file():
            return place
    raise NotFound(f"there is no run configuration {path / wanted}", "Correct the path, or the name.")


def _conda_file(file: str, folder: Path) -> Path:
    """The conda file, which v1 names relative to the project; the configuration is in its `.azureml`."""
    roots = [folder.parent, folder] if folder.name in _FOLDERS else [folder]
    return next((root / file for root in roots if (root / file).is_file()), roots[0] / file).absolute()


def _fill(part: object, values: Mapping[str, Json], keys: Sequence[str]) -> None:
    """Set the attributes that the file has."""
    for key in keys:
        if values.get(key) is not None:
            setattr(part, key, values[key])


def _section(values: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def _snake(values: Mapping[str, Json]) -> dict[str, Json]:
    """The values with keys in snake case; names that users choose stay as they are."""
    own = ("environmentVariables", "environment_variables", "condaDependencies", *_DATA, "dataReferences", "outputData")
    return {
        re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): (
            _snake(value) if isinstance(value, Mapping) and key not in own else value
        )
        for key, value in values.items()
    }


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _listed(value: Any) -> Any:
    return (
        [item if isinstance(item, int | float) else str(item) for item in value] if isinstance(value, list) else value
    )
