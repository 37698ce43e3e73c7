"""The metric name for a tag of a file, where several files, tools and the script may log the same. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

_MOST = 10_000
"""Limit of metrics per attempt from files: a tag for each weight of a network would help nobody."""


@dataclass
class Names:
    """Names are assigned once, and kept."""

    given: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """By tool, folder and tag."""
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The tool and the folder that each name comes from."""
    too_many: int = 0
    """How many points of further tags were dropped."""

    def name(self, tool: str, folder: str, tag: str, logged: Set[str]) -> str | None:
        """The name for a tag; None where the script logs it itself, or with another tool.

        A second folder with the same tag, such as Keras's `validation`, gets its own name as a prefix.
        """
        if tag in logged:
            return None
        name = self.given.get((tool, folder, tag))
        if name is not None:
            return None if name in logged else name
        if len(self.given) >= _MOST:
            self.too_many += 1
            return None
        for name in (tag, f"{folder.rpartition('/')[2]}/{tag}", f"{folder}/{tag}"):
            owner = self.owners.get(name)
            if owner is None and name not in logged:
                self.give(tool, folder, tag, name)
                return name
            if owner is not None and owner[0] != tool:
                return None
        return None

    def give(self, tool: str, folder: str, tag: str, name: str) -> None:
        self.given[tool, folder, tag] = name
        self.owners.setdefault(name, (tool, folder))
