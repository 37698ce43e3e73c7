"""Model files, as Azure ML writes them: a name, a path, a type, and words about the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.document import MAX_BYTES, BadDocument, MappingNode, Node, ScalarNode, SequenceNode, read_document
from muster.job.refusal import nearest
from muster.wire.codec import Json
from muster.wire.models import MODEL_TYPES, STAGES, ModelType, Stage

_KEYS = ("name", "version", "type", "path", "description", "tags", "properties", "flavors", "stage")
_SILENT = ("$schema", "id", "job_name", "latest_version", "utc_time_created", "creation_context", "datastore")
_LEFT_OUT = {"flavors": "the MLmodel file says them"}


@dataclass(frozen=True)
class ModelFile:
    """What a model file says."""

    name: str
    path: str
    """A local path, made absolute, or an address."""
    type: ModelType | None = None
    version: int | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)
    stage: Stage | None = None
    notices: tuple[str, ...] = ()


def read_model_file(file: Path) -> ModelFile:
    """Read a model file; raises JobError that names the file, the line and the key."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise JobError(f"the model file {file} cannot be read: {error.strerror}", "Correct the path.") from error
    if len(raw) > MAX_BYTES:
        raise JobError(f"{file} has {len(raw):,} bytes", f"A model file has at most {MAX_BYTES:,}.")
    try:
        root = read_document(raw.decode("utf-8-sig"))
    except BadDocument as error:
        raise JobError(f"{file}:{error.line}: {error.message}", error.hint) from error
    except UnicodeDecodeError as error:
        raise JobError(f"{file} is no text in UTF-8", "Give a model file (.yml).") from error
    if not isinstance(root, MappingNode):
        raise JobError(f"{file}: this is no model file", "Write KEY: VALUE lines: name, path, type.")
    return _checked(file, root)


def _checked(file: Path, root: MappingNode) -> ModelFile:
    values: dict[str, Json] = {}
    for key, line, node in root.pairs():
        if key not in _KEYS and key not in _SILENT:
            hint = f"{nearest(key, _KEYS)}Keys are: {', '.join(_KEYS)}."
            raise JobError(f"{file}:{line}: a model file has no key {key!r}", hint)
        values[key] = _plain(node)
    name, path = values.get("name"), values.get("path")
    if not isinstance(name, str) or not isinstance(path, str):
        missing = "name" if not isinstance(name, str) else "path"
        raise JobError(f"{file}: `{missing}` is missing, or is no text", f"Write {missing}: …")
    kind, stage = values.get("type"), values.get("stage")
    _allowed(file, "type", kind, MODEL_TYPES)
    _allowed(file, "stage", stage, STAGES)
    return ModelFile(
        name,
        _path(path, file.parent, values.get("datastore")),
        next((known for known in MODEL_TYPES if known == kind), None),
        _version(file, values.get("version")),
        None if values.get("description") is None else str(values["description"]),
        {key: str(value) for key, value in _mapping(values, "tags").items()},
        _mapping(values, "properties"),
        next((known for known in STAGES if known == stage), None),
        tuple(f"{key} is left out: {why}" for key, why in _LEFT_OUT.items() if key in values),
    )


def _allowed(file: Path, key: str, value: Json, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise JobError(f"{file}: {key}: {value!r} is not allowed", f"Allowed are {', '.join(known)}.")


def _version(file: Path, value: Json) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise JobError(f"{file}: the version {text!r} is no number", "Leave it out for the next one.")
    return int(text)


def _path(path: str, folder: Path, datastore: Json) -> str:
    if isinstance(datastore, str):
        return f"azureml://datastores/{datastore.removeprefix('azureml:')}/paths/{path.lstrip('/')}"
    plain = path.removeprefix("file:")
    if plain.startswith(("azureml:", "runs:/", "models:/")) or "://" in plain:
        return plain
    return str((folder / Path(plain).expanduser()).absolute())


def _mapping(values: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else {}


def _plain(node: Node) -> Json:
    if isinstance(node, MappingNode):
        return {key: _plain(value) for key, _, value in node.pairs()}
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    value: Json = node.value
    return value
