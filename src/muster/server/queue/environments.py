"""Environments of queued runs: kept in memory with the queue, so that nodes can build them before the runs start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from muster.control.isolation import SANDBOX
from muster.control.scheduling.builds import Wish
from muster.control.scheduling.model import Gang
from muster.wire.codec import from_json
from muster.wire.environments import RunEnvironment
from muster.wire.node.recipes import Recipe


class Environments:
    """The environments that queued runs need."""

    def __init__(self) -> None:
        self._contents: dict[str, str] = {}
        """Content by run."""
        self.recipes: dict[str, tuple[Recipe, str | None]] = {}
        """By content: the recipe and the Python to build it on."""

    def put(self, row: Any) -> None:
        """Add a queued run. Nothing is built for a sandboxed job: that would run code of the packages."""
        stored = row.environment
        if not stored or stored.get("recipe") is None or row.spec.get("isolation") == SANDBOX:
            return
        content = _content_of(stored, row.python)
        self._contents[row.id] = content
        if content not in self.recipes:
            record = from_json(RunEnvironment, stored)
            if record.recipe is not None:
                self.recipes[content] = (record.recipe.locked(record.lock or ()), row.python)

    def drop(self, run_id: str) -> None:
        self._contents.pop(run_id, None)

    def wishes(self, gangs: Iterable[Gang]) -> list[Wish]:
        """A wish for each of these gangs that runs in an environment, in their order."""
        return [
            Wish(gang, content, self.recipes[content][0].label)
            for gang in gangs
            if (content := self._contents.get(gang.run_id)) is not None
        ]

    @property
    def has_any(self) -> bool:
        return bool(self._contents)


def _content_of(stored: dict[str, Any], python: str | None) -> str:
    recipe = {**stored["recipe"], "label": "", "variables": {}}
    text = json.dumps([recipe, stored.get("lock"), python], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
