"""One set of versions for a gang: its nodes use the versions that the first of them resolved. In a worker."""

from __future__ import annotations

from dataclasses import replace

from muster.environments.caller import Caller
from muster.environments.venvs import locks
from muster.environments.venvs.interpreters import host_platform
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.recipes import Recipe


def before(caller: Caller, recipe: Recipe, python: str) -> Recipe:
    """The recipe to build: with the gang's versions, if another node has settled them."""
    if not _is_open(caller, recipe):
        return recipe
    return _kept(caller, recipe, caller.agree(None), python)


def after(caller: Caller, recipe: Recipe, built: BuiltEnvironment) -> Recipe:
    """Offer this node's versions to the gang; returns another recipe than the given one if that must replace it."""
    if not _is_open(caller, recipe):
        return recipe
    agreed = caller.agree(replace(built, platform=host_platform()))
    if locks.same(agreed.lock or (), built.lock or ()):
        return recipe
    return _kept(caller, recipe, agreed, built.python)


def _is_open(caller: Caller, recipe: Recipe) -> bool:
    return caller.num_nodes > 1 and not recipe.constraints


def _kept(caller: Caller, recipe: Recipe, agreed: AgreedVersions, python: str) -> Recipe:
    if not agreed.lock:
        return recipe
    theirs, mine = _minor(agreed.python or ""), _minor(python)
    if (theirs, agreed.platform) == (mine, host_platform()):
        return recipe.locked(agreed.lock)
    # There, the same versions have other archives.
    where = f"Python {theirs} on {agreed.platform}; here are Python {mine} and {host_platform()}"
    caller.note("warning", f"the versions of {recipe.label} were settled by a node with {where}")
    return recipe.locked([locks.plain(line) for line in agreed.lock])


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])
