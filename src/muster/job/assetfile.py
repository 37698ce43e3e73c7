"""Files that describe one asset of a workspace, a model or a deployment: a mapping, with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.errors import JobError
from muster.job.document import MAX_BYTES, BadDocument, MappingNode, Node, ScalarNode, SequenceNode, read_document
from muster.job.refusal import nearest
from muster.job.rules import is_address
from muster.wire.codec import Json


def read_asset_file(
    file: Path,
    what: str,
    keys: Sequence[str],
    silent: Sequence[str],
    sections: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Json]:
    """The values of a file by key; keys in neither list are refused, all of them at once.

    `sections`: the keys allowed in nested mappings, by their path.
    """
    root = _root(file, what, keys[:4])
    article = "an" if what[0] in "aeiou" else "a"
    wrong = list(_unknown(root, "", [*keys, *silent], sections or {}))
    if wrong:
        lines = [f"{file}:{item.line}: {article} {what} has no key {item.path!r}" for item in wrong]
        hints = [
            f"{nearest(item.path.rpartition('.')[2], item.allowed).replace('did', 'Did', 1)}Keys{item.where}: "
            f"{', '.join(key for key in item.allowed if key not in silent)}."
            for item in wrong
        ]
        raise JobError("\n".join(lines), "\n".join(dict.fromkeys(hints)))
    return {key: plain(node) for key, _, node in root.pairs()}


def read_plain_file(file: Path, what: str = "file") -> dict[str, Json]:
    """The values of a file by key, without checks."""
    return {key: plain(node) for key, _, node in _root(file, what, ("name",)).pairs()}


def _root(file: Path, what: str, keys: Sequence[str]) -> MappingNode:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise JobError(f"the {what} {file} cannot be read: {error.strerror}", "Correct the path.") from error
    if len(raw) > MAX_BYTES:
        raise JobError(f"{file} has {len(raw):,} bytes", f"A {what} has at most {MAX_BYTES:,}.")
    try:
        root = read_document(raw.decode("utf-8-sig"))
    except BadDocument as error:
        raise JobError(f"{file}:{error.line}: {error.message}", error.hint) from error
    except UnicodeDecodeError as error:
        raise JobError(f"{file} is no text in UTF-8", f"Give a {what} (.yml).") from error
    if not isinstance(root, MappingNode):
        raise JobError(f"{file}: this is no {what}", f"Write KEY: VALUE lines: {', '.join(keys)}.")
    return root


@dataclass(frozen=True)
class _Unknown:
    """A key that is not known."""

    line: int
    path: str
    allowed: Sequence[str]

    @property
    def where(self) -> str:
        section = self.path.rpartition(".")[0]
        return f" of {section}" if section else " are"


def _unknown(
    node: MappingNode, below: str, allowed: Sequence[str], sections: Mapping[str, Sequence[str]]
) -> Iterator[_Unknown]:
    for key, line, value in node.pairs():
        path = f"{below}{key}"
        if key not in allowed:
            yield _Unknown(line, path, allowed)
        elif isinstance(value, MappingNode) and path in sections:
            yield from _unknown(value, f"{path}.", sections[path], sections)


def plain(node: Node) -> Json:
    """A value of a document without its line numbers."""
    if isinstance(node, MappingNode):
        return {key: plain(value) for key, _, value in node.pairs()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    value: Json = node.value
    return value


def mapping(values: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    """A section; empty if there is none."""
    value = values.get(key)
    return value if isinstance(value, Mapping) else {}


def located(path: str, folder: Path) -> str:
    """A path from a file, made absolute; an address is unchanged."""
    given = path.removeprefix("file:")
    return given if is_address(given) else str((folder / Path(given).expanduser()).absolute())
