"""One set of versions for a gang: its nodes keep to what the first of them came to. In a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.environments.venvs import locks
from muster.environments.venvs.interpreters import host_platform
from muster.environments.venvs.recipe import Recipe
from muster.wire.node.agents import Order
from muster.wire.stream import Level

Ask = Callable[[Order, Mapping[str, Any] | None], Mapping[str, Any]]
"""Tells the server what this node came to, if anything yet; hears what the gang keeps to, empty where it is open."""


@dataclass(frozen=True)
class Agreement:
    """Between the nodes of one attempt, through the server, where the first to come counts."""

    ask: Ask
    order: Order
    note: Callable[[Level, str], None]

    def before(self, recipe: Recipe, python: str) -> Recipe:
        """What to build: with the gang's versions, where another node has settled them."""
        if not self._is_open(recipe):
            return recipe
        return self._kept(recipe, self.ask(self.order, None), python)

    def after(self, recipe: Recipe, facts: Mapping[str, Any]) -> Recipe:
        """Settle what this node came to; another recipe than the given one where it has to build that instead."""
        if not self._is_open(recipe):
            return recipe
        told = self.ask(self.order, {**facts, "platform": host_platform()})
        if locks.same(told.get("lock", ()), facts["lock"]):
            return recipe
        return self._kept(recipe, told, str(facts["python"]))

    def _is_open(self, recipe: Recipe) -> bool:
        return self.order.num_nodes > 1 and not recipe.constraints

    def _kept(self, recipe: Recipe, told: Mapping[str, Any], python: str) -> Recipe:
        if not told.get("lock"):
            return recipe
        theirs, mine = _minor(str(told["python"])), _minor(python)
        if (theirs, told.get("platform")) == (mine, host_platform()):
            return recipe.locked(told["lock"])
        # The same versions have other archives there.
        where = f"Python {theirs} on {told.get('platform')}; here are Python {mine} and {host_platform()}"
        self.note("warning", f"the versions of {recipe.label} were settled by a node with {where}")
        return recipe.locked([locks.plain(line) for line in told["lock"]])


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])
