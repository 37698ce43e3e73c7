"""Reads YAML into a tree with line numbers, limited in size, depth and expansion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from muster.errors import JobError

MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
MAX_DEPTH = 40


class BadDocument(JobError):
    """Text that is not a YAML document that Muster can read."""

    def __init__(self, line: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.line = line


@dataclass
class Node:
    """One value of the document."""

    line: int
    size: int = 1
    """How many values it contains after every alias in it is expanded."""
    height: int = 1
    closed: bool = True


@dataclass
class ScalarNode(Node):
    value: Any = None
    written: str = ""
    """As written in the file: `1.10`, `yes`, `007`."""


@dataclass
class SequenceNode(Node):
    items: list[Node] = field(default_factory=list)


@dataclass
class MappingNode(Node):
    entries: dict[str, tuple[int, Node]] = field(default_factory=dict)
    """Key to the key's line and the value."""
    merged: list[MappingNode] = field(default_factory=list)
    """Mappings merged with `<<`; the first wins."""

    def pairs(self) -> Iterator[tuple[str, int, Node]]:
        """Every entry, those of merged mappings included."""
        seen = set(self.entries)
        for key, (line, node) in self.entries.items():
            yield key, line, node
        for other in self.merged:
            for key, line, node in other.pairs():
                if key not in seen:
                    seen.add(key)
                    yield key, line, node

    def find(self, key: str) -> tuple[int, Node] | None:
        """The line and value of a key, in the mapping itself or in a merged one."""
        return next(((line, node) for name, line, node in self.pairs() if name == key), None)


def read_document(text: str) -> Node | None:
    """The tree of a YAML text, None if it is empty; raises BadDocument."""
    try:
        return _Composer(_Loader(text)).document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _not_yaml(line, f"it holds the character #x{error.character:02x}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _not_yaml(mark.line + 1 if mark else 1, error.problem or str(error)) from error


class _Loader(yaml.SafeLoader):
    """Resolves scalars as SafeLoader does, but leaves dates as text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Composer:
    """Builds the tree from events, without recursion, and stops as soon as a limit is exceeded."""

    def __init__(self, loader: _Loader) -> None:
        self.loader = loader
        self.anchors: dict[str, Node] = {}
        self.open: list[Node] = []
        self.keys: list[ScalarNode | None] = []
        """For every open node, the key that waits for its value."""

    def document(self) -> Node | None:
        root: Node | None = None
        while self.loader.check_event():
            event = self.loader.get_event()  # type: ignore[no-untyped-call]
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise BadDocument(line, "a second YAML document begins here", "Keep one job per file.")
            if isinstance(event, yaml.CollectionEndEvent):
                node = self.open.pop()
                self.keys.pop()
                node.closed = True
                self._attach(node)
            elif isinstance(event, yaml.NodeEvent):
                node = self._node(event, line)
                root = node if root is None else root
                if node.closed:
                    self._attach(node)
                else:
                    self.open.append(node)
                    self.keys.append(None)
        return None if isinstance(root, ScalarNode) and root.value is None else root

    def _node(self, event: yaml.NodeEvent, line: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event.anchor, line)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, line)
        else:
            self._check_tag(event, line)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            node = MappingNode(line, closed=False) if is_mapping else SequenceNode(line, closed=False)
            if len(self.open) >= MAX_DEPTH:
                raise _too_deep(line)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _aliased(self, anchor: str | None, line: int) -> Node:
        node = self.anchors.get(anchor or "")
        if node is None:
            raise BadDocument(line, f"*{anchor} refers to no anchor", f"Define &{anchor} before it is used.")
        if not node.closed:
            raise BadDocument(line, f"*{anchor} holds itself", "Write the value out.")
        return node

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> ScalarNode:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        kind = str(tag).removeprefix("tag:yaml.org,2002:")
        # YAML 1.1 reads 12:30 as a number in base 60, which nobody means.
        if kind == "str" or kind in ("merge", "value") or (kind in ("int", "float") and ":" in event.value):
            return ScalarNode(line, value=event.value, written=event.value)
        if kind not in ("null", "bool", "int", "float"):
            raise BadDocument(line, f"the tag {tag} is not allowed", "Remove the tag.")
        construct = getattr(self.loader, f"construct_yaml_{kind}")
        try:
            value = construct(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, OverflowError, IndexError):
            raise BadDocument(line, f"{event.value[:60]!r} cannot be read as {kind}", "Put it in quotes.") from None
        return ScalarNode(line, value=value, written=event.value)

    def _check_tag(self, event: yaml.NodeEvent, line: int) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise BadDocument(line, f"the tag {tag} is not allowed", "Remove the tag.")

    def _attach(self, node: Node) -> None:
        if not self.open:
            return
        parent = self.open[-1]
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if parent.size > MAX_VALUES:
            raise BadDocument(
                node.line,
                f"the file grows to more than {MAX_VALUES:,} values",
                "Write less, and repeat less with anchors and aliases.",
            )
        if parent.height > MAX_DEPTH:
            raise _too_deep(node.line)
        if isinstance(parent, SequenceNode):
            parent.items.append(node)
        elif isinstance(parent, MappingNode):
            self._attach_to_mapping(parent, node)

    def _attach_to_mapping(self, parent: MappingNode, node: Node) -> None:
        key = self.keys[-1]
        if key is None:
            self.keys[-1] = _checked_key(node)
            return
        self.keys[-1] = None
        if key.value == "<<":
            parent.merged += _merged(node, key.line)
        elif key.value in parent.entries:
            first = parent.entries[key.value][0]
            raise BadDocument(key.line, f"the key '{key.value}' is given twice, first in line {first}", "Remove one.")
        else:
            parent.entries[key.value] = (key.line, node)


def _checked_key(node: Node) -> ScalarNode:
    if not isinstance(node, ScalarNode):
        raise BadDocument(node.line, "a key is a list or a mapping", "Keys are texts.")
    if not isinstance(node.value, str):
        kind = "nothing" if node.value is None else "true or false" if isinstance(node.value, bool) else "a number"
        raise BadDocument(node.line, f"YAML reads the key {node.written!r} as {kind}", "Put the key in quotes.")
    return node


def _merged(node: Node, line: int) -> list[MappingNode]:
    found = node.items if isinstance(node, SequenceNode) else [node]
    mappings = [item for item in found if isinstance(item, MappingNode)]
    if len(mappings) < len(found):
        raise BadDocument(line, "<< takes in something that is not a mapping", "Merge mappings only.")
    return mappings


def _too_deep(line: int) -> BadDocument:
    return BadDocument(line, f"nested more than {MAX_DEPTH} levels deep", "A job file needs about four.")


def _not_yaml(line: int, reason: str) -> BadDocument:
    return BadDocument(line, f"not YAML: {reason}", "Write KEY: VALUE lines; docs/job-file.md has examples.")
