"""The job file: YAML in, JobSpec out, with file, line and key in every error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from muster.errors import JobError
from muster.job import refusal
from muster.job.document import MAX_BYTES, BadDocument, MappingNode, Node, ScalarNode, SequenceNode, read_document
from muster.job.explain import make_spec
from muster.job.refusal import Problem, show
from muster.job.sections import ignored_reason
from muster.job.spec import JobSpec
from muster.wire.codec import Json

_EXAMPLE_HINT = "A job file needs at least `command: …`; docs/job-file.md has examples."
# Here a value is text, so it is taken as it stands in the file: 1.10, yes, 007.
_TEXT_BELOW = ("environment_variables", "tags", "command")
_TEXT_AT = (("environment", "python"),)


@dataclass(frozen=True)
class LoadedJob:
    """A job file that was read."""

    spec: JobSpec
    notices: tuple[str, ...]
    base_dir: Path
    """The folder that relative paths in the job start from."""


def load_job_file(path: str | Path) -> LoadedJob:
    """Read a job file; raises JobError with file, line and key of every problem."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}", "Give the path of a job file.") from error
    if len(raw) > MAX_BYTES:
        raise JobError(f"{path}: larger than 1 MiB", f"This is not a job file. {_EXAMPLE_HINT}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise JobError(f"{path}:{line}: not text in UTF-8", f"Is this a job file? {_EXAMPLE_HINT}") from error
    return parse_job(text, source=str(path), base_dir=file.absolute().parent)


def parse_job(text: str, source: str = "job.yml", base_dir: str | Path = ".") -> LoadedJob:
    """Read the text of a job file; `source` is how errors call it."""
    root = _root(text, source)
    notices: list[str] = []
    data = _mapping(root, (), source, notices)
    spec = make_spec(data, source, lambda path: _line_of(root, path))
    return LoadedJob(spec, tuple(notices), Path(base_dir).absolute())


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


def _mapping(node: MappingNode, path: refusal.Path, source: str, notices: list[str]) -> dict[str, Json]:
    """Plain data without the keys that mean nothing here; each of those gives a notice."""
    data = {}
    for key, line, value in node.pairs():
        here = (*path, key)
        reason = ignored_reason(here)
        if reason:
            notices.append(f"{source}:{line}: {Problem(here, '').key}: {reason}")
        else:
            data[key] = _plain(value, here, source, notices)
    return data


def _plain(node: Node, path: refusal.Path, source: str, notices: list[str]) -> Json:
    if isinstance(node, MappingNode):
        return _mapping(node, path, source, notices)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, index), source, notices) for index, item in enumerate(node.items)]
    assert isinstance(node, ScalarNode)
    # `command: true` means the program, not the truth.
    is_program = path == ("command",) and isinstance(node.value, bool)
    as_written = is_program or path in _TEXT_AT or (len(path) == 2 and path[0] in _TEXT_BELOW)
    return node.written if as_written and node.value is not None else node.value


def _line_of(root: MappingNode, path: refusal.Path) -> int:
    """The line of the deepest part of a path that the file has."""
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
