"""Options of `muster cluster create` that belong to one engine. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Flag:
    """An option that sets one setting of an engine's clusters: `--token-file` sets `token_file`."""

    setting: str
    metavar: str
    help: str
    kind: Literal["text", "texts", "switch"] = "text"
