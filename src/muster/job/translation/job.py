"""The job that corresponds to a command line or a batch script, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import yaml

from muster.wire.codec import Json

Kind = Literal["pytorch", "mpi"]


@dataclass(frozen=True)
class Translated:
    """One job, with notices for its author."""

    command: str
    """Run by bash in each rank."""
    nodes: int = 1
    per_node: int | None = None
    """None: one process without ranks."""
    kind: Kind = "pytorch"
    gpus_per_node: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int | None = None
    name: str | None = None
    """A name for people."""
    experiment: str | None = None
    code: str = "."
    retries: int = 0
    notices: tuple[str, ...] = ()

    def document(self) -> dict[str, Json]:
        """The job file's content."""
        resources: dict[str, Json] = {}
        if self.nodes > 1:
            resources["instance_count"] = self.nodes
        if self.gpus_per_node is not None:
            resources["gpus_per_node"] = self.gpus_per_node
        ranks = {"type": self.kind, "process_count_per_instance": self.per_node}
        parts: dict[str, Json] = {
            "display_name": self.name,
            "experiment_name": self.experiment,
            "code": self.code,
            "command": self.command,
            "resources": resources,
            "distribution": ranks if self.per_node is not None else {},
            "environment_variables": dict(self.env),
            "limits": {"timeout": self.timeout_s} if self.timeout_s else {},
            "retry": {"user_error": self.retries} if self.retries else {},
        }
        return {name: part for name, part in parts.items() if part not in (None, {})}

    def text(self, source: str = "") -> str:
        """The job file, as a person would write it."""
        lines = [f"# From {source}." if source else ""]
        for name, part in self.document().items():
            lines.append(_entry(name, part))
        return "\n".join(line for line in lines if line) + "\n"


def _entry(name: str, part: Json) -> str:
    if isinstance(part, str) and "\n" in part:
        indented = "\n".join(f"  {line}" for line in part.splitlines())
        return f"{name}: |\n{indented}"
    flow = None if isinstance(part, Mapping) else False
    return yaml.safe_dump({name: part}, default_flow_style=flow, sort_keys=False, width=110, allow_unicode=True).strip()
