"""The job file: YAML in, JobSpec out, with file, line and key in every error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from muster.errors import JobError
from muster.job import batchai, mlproject, refusal
from muster.job.azure import left_out_notice, older, settle
from muster.job.document import MAX_BYTES, BadDocument, MappingNode, Node, ScalarNode, SequenceNode, read_document
from muster.job.environmentfile import with_environment_file
from muster.job.explain import make_spec
from muster.job.refusal import show
from muster.job.rules import is_address
from muster.job.sections import no_job
from muster.job.spec import JobSpec
from muster.wire.codec import Json

_ENDINGS = (".yml", ".yaml", ".json")
_EXAMPLE_HINT = "A job file needs at least `command: …`; docs/job-file.md has examples."
# These values are text, so they are taken as written in the file: 1.10, yes, 007.
_TEXT_BELOW = ("environment_variables", "tags", "properties", "command")
_TEXT_AT = (("environment", "python"),)


@dataclass(frozen=True)
class LoadedJob:
    """A job that was read and checked."""

    spec: JobSpec
    notices: tuple[str, ...]
    base_dir: Path
    """The folder to which relative paths in the job refer."""


@dataclass(frozen=True)
class JobDocument:
    """A job file that was read but not yet checked: the command line may still override its values."""

    data: Mapping[str, Json]
    base_dir: Path
    source: str
    root: MappingNode
    notices: tuple[str, ...] = ()

    def checked(self, data: Mapping[str, Json]) -> LoadedJob:
        """The job of this file, or of its changed data; raises JobError with file, line and key of every problem."""
        if other := no_job(data):
            raise JobError(f"{self.source}: this is {other[0]}, not a job", other[1])
        settled = settle(as_found(data, self.base_dir))
        lines = {path: _line_of(self.root, path) for path in settled.left_out}
        notice = left_out_notice(settled, lines)
        spec = make_spec(settled.data, self.source, lambda path: _line_of(self.root, path))
        return LoadedJob(spec, (*self.notices, *([f"{self.source}: {notice}"] if notice else [])), self.base_dir)


def as_found(data: Mapping[str, Json], base_dir: Path) -> Mapping[str, Json]:
    """The same job with its environment's file read, and with the type `uri_file` for untyped inputs that are files."""
    inputs = data.get("inputs")
    if isinstance(inputs, Mapping):
        data = {**data, "inputs": {name: _typed(item, base_dir) for name, item in inputs.items()}}
    return with_environment_file(data, base_dir)


def _typed(item: Json, base_dir: Path) -> Json:
    path = item.get("path") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or item.get("type") is not None or not isinstance(path, str) or is_address(path):
        return item
    plain = base_dir / Path(path.removeprefix("file:")).expanduser()
    return {**item, "type": "uri_file"} if plain.is_file() else item


def load_job_file(path: str | Path) -> LoadedJob:
    """Read and check a job file; raises JobError with file, line and key of every problem."""
    document = read_job_file(path)
    return document.checked(document.data)


def read_job_file(path: str | Path) -> JobDocument:
    """Read a job file; raises JobError if it is not a YAML mapping."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}", _beside(file)) from error
    if len(raw) > MAX_BYTES:
        raise JobError(f"{path}: larger than 1 MiB", f"This is not a job file. {_EXAMPLE_HINT}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise JobError(f"{path}:{line}: not text in UTF-8", f"Is this a job file? {_EXAMPLE_HINT}") from error
    return _document(text, str(path), file.absolute().parent)


def _beside(file: Path) -> str:
    """A suggestion for a path to a file that does not exist."""
    names = [item.name for item in file.parent.iterdir()] if file.parent.is_dir() else []
    endings = _ENDINGS if file.suffix in _ENDINGS else file.suffix
    close = get_close_matches(file.name, [name for name in names if name.endswith(endings)], 1)
    return f"Did you mean {file.with_name(close[0])}?" if close else "Give the path of a job file."


def read_job_text(text: str, source: str, base_dir: Path) -> JobDocument:
    """Read the text of a job file; raises JobError if it is not a YAML mapping."""
    return _document(text, source, base_dir)


def parse_job(text: str, source: str = "job.yml", base_dir: str | Path = ".") -> LoadedJob:
    """Read and check the text of a job file; `source` is its name in errors."""
    document = _document(text, source, Path(base_dir).absolute())
    return document.checked(document.data)


def _document(text: str, source: str, base_dir: Path) -> JobDocument:
    root = _root(text, source)
    data, notices = _mapping(root, ()), []
    try:
        if batchai.is_batch_ai(data):
            # Read under another key, so that values are not taken as text.
            job = batchai.translate(_mapping(root, ("",)), base_dir)
            data, notices = job.data, job.notices
        elif mlproject.is_ml_project(data):
            data = mlproject.translate(_mapping(root, ("",)))
    except JobError as error:
        raise JobError(f"{source}: {error.message}", error.hint) from error
    return JobDocument(older(data), base_dir, source, root, tuple(f"{source}: {notice}" for notice in notices))


def _root(text: str, source: str) -> MappingNode:
    if len(text) > MAX_BYTES:
        raise JobError(f"{source}: larger than 1 MiB", f"This is not a job file. {_EXAMPLE_HINT}")
    try:
        root = read_document(text)
    except BadDocument as error:
        raise JobError(f"{source}:{error.line}: {error.message}", error.hint) from error
    if root is None:
        raise JobError(f"{source}:1: the file is empty", _EXAMPLE_HINT)
    if isinstance(root, MappingNode):
        return root
    given = show(root.value) if isinstance(root, ScalarNode) else "a list"
    raise JobError(f"{source}:{root.line}: {given} is given; a job is a mapping (KEY: VALUE)", _EXAMPLE_HINT)


def _mapping(node: MappingNode, path: refusal.Path) -> dict[str, Json]:
    return {key: _plain(value, (*path, key)) for key, _, value in node.pairs()}


def _plain(node: Node, path: refusal.Path) -> Json:
    if isinstance(node, MappingNode):
        return _mapping(node, path)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, index)) for index, item in enumerate(node.items)]
    assert isinstance(node, ScalarNode)
    # `command: true` means the program, not the boolean.
    is_program = path == ("command",) and isinstance(node.value, bool)
    as_written = is_program or path in _TEXT_AT or (len(path) == 2 and path[0] in _TEXT_BELOW)
    return node.written if as_written and node.value is not None else node.value


def _line_of(root: MappingNode, path: refusal.Path) -> int:
    """The line of the deepest part of a path that exists in the file."""
    node: Node = root
    line = root.line
    for part in path:
        if isinstance(node, MappingNode):
            found = node.find(str(part))
            if found is None:
                break
            line, node = found
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            line = node.line
        else:
            break
    return line
