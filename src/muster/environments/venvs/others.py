"""Environments that nodes share: one builds, the others copy its result. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from muster.environments.venvs.interpreters import Interpreter

Opened = Callable[[], AbstractContextManager[Path]]
"""Opens the folder to copy from, for as long as that takes."""


class Others(Protocol):
    """Other nodes that may have an environment (`what` names it in messages), or need it."""

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool], what: str) -> Iterator[Path | None]:
        """The packed environment; None: it is here by now, or must be built here, while nobody else builds it."""

    def keep(self, key: str, opened: Opened, what: str) -> None:
        """Offer a finished build to the others; returns before it is copied."""

    def close(self) -> None:
        """Let others build what should have been built here and was not."""


class NoOthers:
    """Nobody to share with."""

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool], what: str) -> Iterator[Path | None]:
        yield None

    def keep(self, key: str, opened: Opened, what: str) -> None:
        return

    def close(self) -> None:
        return


def common_key(key: str, base: Interpreter) -> str:
    """The name of an environment between nodes: shared only by those with the same interpreter at the same path."""
    return hashlib.sha256(json.dumps([key, base.text, base.path]).encode()).hexdigest()
