"""Reads the files that an environment refers to on the submitting machine: conda files, requirement files, wheels."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from muster.environments import condafile
from muster.errors import JobError
from muster.job.parts import EnvironmentSpec
from muster.job.spec import JobSpec
from muster.wire.codec import Json

_INCLUDES = ("-r", "--requirement")
_DEPTH = 10


def with_contents(spec: JobSpec, base_dir: Path) -> JobSpec:
    """The same job with its environment's files read into it: the server does not see this machine's files."""
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec):
        return spec
    update: dict[str, Json] = {}
    if isinstance(environment.conda_file, str):
        path = (base_dir / Path(environment.conda_file).expanduser()).resolve()
        update["conda_file"] = conda_content(path)
    elif environment.conda_file is not None:
        update["conda_file"] = _with_lines(environment.conda_file, base_dir)
    listed = [f"-r {environment.pip_requirements_file}"] if environment.pip_requirements_file else []
    if environment.pip or listed:
        update["pip"] = tuple(requirement_lines([*environment.pip, *listed], base_dir))
        update["pip_requirements_file"] = None
    if environment.python and environment.python.startswith(("./", "../", "~/")):
        # Not resolved: a virtual environment is known by the path it is started from.
        update["python"] = str((base_dir / Path(environment.python).expanduser()).absolute())
    return spec.model_copy(update={"environment": environment.model_copy(update=update)}) if update else spec


def conda_content(path: Path) -> dict[str, Json]:
    """A conda file's content, checked; raises JobError with the line of the error."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the conda file {path} cannot be read: {error}", "Correct the path.") from error
    # Most jobs have no conda file, and need not load the parser.
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise JobError(f"{path}{where}: the conda file is not valid YAML: {problem}", "Correct that line.") from error
    try:
        condafile.read(data)
    except condafile.BadCondaFile as wrong:
        line = _line_of(text, wrong.path)
        where = ".".join(str(part) for part in wrong.path)
        raise JobError(f"{path}:{line}: {where + ': ' if where else ''}{wrong.message}", wrong.hint) from wrong
    return _with_lines(data, path.parent)


def requirement_file(path: Path) -> list[str]:
    """The lines of a requirements file, with the files that it includes."""
    return requirement_lines([f"-r {path}"], path.parent)


def requirement_lines(lines: Any, base_dir: Path, depth: int = 0) -> list[str]:
    """Requirements with included files read and local wheels as absolute paths, identified by their content."""
    found: list[str] = []
    for line in lines:
        option, _, rest = str(line).strip().partition(" ")
        if option in _INCLUDES and rest:
            path = (base_dir / Path(rest.strip()).expanduser()).resolve()
            if depth >= _DEPTH:
                raise JobError(f"the requirements file {path} includes itself", "Remove the -r line that leads back.")
            found += requirement_lines(_read(path), path.parent, depth + 1)
        else:
            found.append(_with_hash(str(line), base_dir))
    return found


def _read(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the requirements file {path} cannot be read: {error}", "Correct the path.") from error
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def _with_hash(line: str, base_dir: Path) -> str:
    text = line.strip()
    if not text.endswith(".whl") or "://" in text or "@" in text:
        return line
    path = (base_dir / Path(text).expanduser()).resolve()
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise JobError(f"the wheel {text} cannot be read: {error.strerror}", "Correct the path.") from error
    return f"{path.name.split('-', 1)[0]} @ {path.as_uri()}#sha256={digest}"


def _with_lines(data: Any, base_dir: Path) -> dict[str, Json]:
    """A conda file's content with the lines of its pip part read."""
    parts = []
    for item in data.get("dependencies") or []:
        if isinstance(item, dict) and isinstance(item.get("pip"), list):
            item = {**item, "pip": requirement_lines(item["pip"], base_dir)}
        parts.append(item)
    return {**data, "dependencies": parts}


def _line_of(text: str, path: tuple[str | int, ...]) -> int:
    """The line of the file that contains a part."""
    import yaml

    node = yaml.compose(text)
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == part]
            if not pairs:
                break
            line, node = pairs[0][0].start_mark.line + 1, pairs[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line
