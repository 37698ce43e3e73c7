"""Environments that nodes take from each other: one builds, the others take what it built. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from muster.environments.venvs.interpreters import Interpreter

Opened = Callable[[], AbstractContextManager[Path]]
"""The folder that is given to others, as long as that takes."""


class Others(Protocol):
    """Other nodes that may have an environment (`what` names it in messages), or want it."""

    @contextmanager
    def taken(self, key: str, is_here: Callable[[], bool], what: str) -> Iterator[Path | None]:
        """The packed environment; None: it is here by now, or to be built here, and by nobody else meanwhile."""

    def keep(self, key: str, opened: Opened, what: str) -> None:
        """Give one that was built to the others; returns before that is done."""

    def close(self) -> None:
        """Let others build what was to be built here and was not."""


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
    """What an environment is called between nodes: only those with the same interpreter at the same place share it."""
    return hashlib.sha256(json.dumps([key, base.text, base.path]).encode()).hexdigest()
