"""Files that describe an environment: Azure ML's, MLflow's, conda files, requirements, Dockerfiles, other job files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from muster.errors import JobError
from muster.job.document import MAX_BYTES, BadDocument, MappingNode, Node, ScalarNode, SequenceNode, read_document
from muster.job.rules import is_address, is_snapshot
from muster.wire.codec import Json

_SUFFIXES = (".yml", ".yaml", ".txt")
_HINT = "Give a conda file, a requirements file (.txt), a Dockerfile, or an environment as Azure ML writes it."


def is_environment_file(text: str) -> bool:
    """Whether a text names a file rather than an environment."""
    return text.startswith("file:") or text.lower().endswith(_SUFFIXES) or Path(text).name.lower() == "dockerfile"


def with_environment_file(data: Mapping[str, Json], base_dir: Path) -> Mapping[str, Json]:
    """The same job with its environment's file, if it has one, read into it."""
    environment = data.get("environment")
    if not isinstance(environment, str) or "://" in environment or not is_environment_file(environment):
        return data
    path = base_dir / Path(environment.removeprefix("file:")).expanduser()
    return {**data, "environment": environment_of(path)}


def environment_of(path: Path) -> Json:
    """The `environment` of a job that uses the environment of a file; its paths are absolute."""
    file = path.absolute()
    if not file.is_file():
        raise JobError(f"there is no environment file {path}", f"Correct the path. {_HINT}")
    label = file.parent.name if file.stem.lower() == "dockerfile" else file.stem
    if file.suffix == ".txt":
        return {"name": label, "pip": [f"-r {file}"]}
    if "dockerfile" in file.name.lower():
        return {"name": label, "build": {"path": str(file.parent), "dockerfile_path": file.name}}
    content = _content(file)
    if "build_dependencies" in content or ("python" in content and "dependencies" in content):
        return _absolute(_of_mlflow(label, content), file.parent)
    if "dependencies" in content:
        return {"name": label, "conda_file": str(file)}
    if "command" in content:
        inner = content.get("environment")
        if isinstance(inner, str) and is_environment_file(inner) and "://" not in inner:
            return environment_of(file.parent / inner.removeprefix("file:"))
        return _absolute(inner, file.parent) if isinstance(inner, Mapping) else inner
    return _absolute({"name": label, **content}, file.parent)


def _of_mlflow(label: str, content: Mapping[str, Json]) -> dict[str, Json]:
    """MLflow's `python_env.yaml`; its `build_dependencies`, the tools of pip itself, are up to Muster."""
    python = {"python": content["python"]} if content.get("python") else {}
    return {"name": label, **python, "pip": content.get("dependencies") or []}


def _content(file: Path) -> dict[str, Json]:
    try:
        raw = file.read_bytes()
        root = read_document(raw[:MAX_BYTES].decode("utf-8-sig"))
    except BadDocument as error:
        raise JobError(f"{file}:{error.line}: {error.message}", error.hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the environment file {file} cannot be read: {error}", _HINT) from error
    if not isinstance(root, MappingNode):
        raise JobError(f"{file}: this is no environment", _HINT)
    found = {key: _plain(value) for key, _, value in root.pairs()}
    python = root.find("python")
    # A version must stay text: 3.10.
    return {**found, "python": python[1].written} if python and isinstance(python[1], ScalarNode) else found


def _plain(node: Node) -> Json:
    if isinstance(node, MappingNode):
        return {key: _plain(value) for key, _, value in node.pairs()}
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    value: Json = node.value
    return value


def _absolute(described: Mapping[str, Json], folder: Path) -> dict[str, Json]:
    changed = dict(described)
    if isinstance(conda := changed.get("conda_file"), str):
        changed["conda_file"] = _path(conda, folder)
    if isinstance(listed := changed.get("pip_requirements_file"), str):
        changed["pip_requirements_file"] = _path(listed, folder)
    if isinstance(lines := changed.get("pip"), list):
        changed["pip"] = [_requirement(line, folder) for line in lines]
    if isinstance(build := changed.get("build"), Mapping) and isinstance(inner := build.get("path"), str):
        changed["build"] = {**build, "path": inner if is_snapshot(inner) else _path(inner, folder)}
    return changed


def _requirement(line: Json, folder: Path) -> Json:
    option, _, rest = line.strip().partition(" ") if isinstance(line, str) else ("", "", "")
    return f"-r {_path(rest.strip(), folder)}" if option in ("-r", "--requirement") and rest else line


def _path(text: str, folder: Path) -> str:
    plain = text.removeprefix("file:")
    return plain if is_address(plain) else str((folder / Path(plain).expanduser()).absolute())
