"""What an agent asks of the process that builds an environment. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """What is wanted."""

    recipe: dict[str, Any]
    key: str
    base: str
    base_version: list[int]
    root: str
    limit_bytes: int
    answers: int
    """The descriptor for JSON lines: {doing}, and at the end {ready} or {failed}."""

    def to_line(self) -> bytes:
        return json.dumps(vars(self)).encode() + b"\n"
