"""One set of versions for a gang: its nodes keep to what the first of them came to. In a worker."""

from __future__ import annotations

from dataclasses import replace

from muster.environments.preparation import Preparation
from muster.environments.venvs import locks
from muster.environments.venvs.interpreters import host_platform
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.recipes import Recipe


def before(preparation: Preparation, recipe: Recipe, python: str) -> Recipe:
    """What to build: with the gang's versions, where another node has settled them."""
    if not _is_open(preparation, recipe):
        return recipe
    return _kept(preparation, recipe, preparation.agree(None), python)


def after(preparation: Preparation, recipe: Recipe, built: BuiltEnvironment) -> Recipe:
    """Settle what this node came to; another recipe than the given one where it has to build that instead."""
    if not _is_open(preparation, recipe):
        return recipe
    agreed = preparation.agree(replace(built, platform=host_platform()))
    if locks.same(agreed.lock or (), built.lock or ()):
        return recipe
    return _kept(preparation, recipe, agreed, built.python)


def _is_open(preparation: Preparation, recipe: Recipe) -> bool:
    return preparation.num_nodes > 1 and not recipe.constraints


def _kept(preparation: Preparation, recipe: Recipe, agreed: AgreedVersions, python: str) -> Recipe:
    if not agreed.lock:
        return recipe
    theirs, mine = _minor(agreed.python or ""), _minor(python)
    if (theirs, agreed.platform) == (mine, host_platform()):
        return recipe.locked(agreed.lock)
    # The same versions have other archives there.
    where = f"Python {theirs} on {agreed.platform}; here are Python {mine} and {host_platform()}"
    preparation.note("warning", f"the versions of {recipe.label} were settled by a node with {where}")
    return recipe.locked([locks.plain(line) for line in agreed.lock])


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])
