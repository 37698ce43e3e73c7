"""Compiled wheels that the nodes of a workspace share. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from muster.environments.venvs.steps import Step


class Wheels(Protocol):
    """The store of compiled wheels."""

    def find(self, key: str, folder: Path) -> bool:
        """Put the wheel of that key into a folder; False: it must be compiled here, and nobody else does meanwhile."""

    def keep(self, key: str, wheel: Path) -> None:
        """Offer a wheel that was compiled to the others."""

    def close(self) -> None:
        """Let others compile what should have been compiled here and was not."""


class NoWheels:
    """Nobody to share with."""

    def find(self, key: str, folder: Path) -> bool:
        return False

    def keep(self, key: str, wheel: Path) -> None:
        return

    def close(self) -> None:
        return


def wheel_key(step: Step, sources: Sequence[str], installed: Sequence[str], python: str, platform: str) -> str:
    """The same for the same result: what is compiled, from which source, against what, for which Python."""
    content = [sorted(step.requirements), dict(step.variables), list(sources), sorted(installed), python, platform]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
