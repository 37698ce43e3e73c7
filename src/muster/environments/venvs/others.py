"""Environments that nodes take from each other: one builds, the others take what it built. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from muster.environments.venvs.interpreters import Interpreter


class Others(Protocol):
    """Other nodes that may have an environment, or want it."""

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool]) -> Iterator[Path | None]:
        """The packed environment; None: it is here by now, or to be built here, and by nobody else meanwhile."""

    def keep(self, key: str, folder: Path) -> None:
        """Give one that was built to the others; returns before that is done."""

    def close(self) -> None:
        """Let others build what was to be built here and was not."""


class NoOthers:
    """Nobody to share with."""

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool]) -> Iterator[Path | None]:
        yield None

    def keep(self, key: str, folder: Path) -> None:
        return

    def close(self) -> None:
        return


def common_key(key: str, base: Interpreter) -> str:
    """What an environment is called between nodes: only those with the same interpreter at the same place share it."""
    return hashlib.sha256(json.dumps([key, base.text, base.path]).encode()).hexdigest()
