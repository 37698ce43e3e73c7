"""The curated environments: one file for each in `curated/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from muster.environments.names import CURATED, FLAVOURS
from muster.environments.venvs.recipe import normalised
from muster.wire.node.recipes import Recipe

_STANDS_FOR = {"tensorflow": ("tensorflow-cpu",), "lightning": ("pytorch-lightning",)}


@dataclass(frozen=True)
class Curated:
    """A curated environment."""

    name: str
    description: str
    needs: Mapping[str, str]
    """The packages that a Python must have, in at least these versions, to be used instead."""
    needs_any: Mapping[str, str]
    """One of these is needed as well, unless it is empty."""
    always: Mapping[str, str]
    """Variables of ranks in it, and in a Python that is used instead."""
    recipes: Mapping[str, Recipe]
    """By flavour."""

    def is_met_by(self, packages: Mapping[str, str]) -> bool:
        """Whether every package needed is installed, in at least its version."""
        all_there = all(_has(packages, normalised(name), Version(least)) for name, least in self.needs.items())
        return all_there and (
            not self.needs_any
            or any(_has(packages, normalised(name), Version(least)) for name, least in self.needs_any.items())
        )


@cache
def load(name: str) -> Curated:
    """A curated environment by its name."""
    text = resources.files("muster.environments").joinpath("curated", f"{name}.yml").read_text()
    data = yaml.safe_load(text)
    return Curated(
        name,
        data["description"],
        data.get("needs", {}),
        data.get("needs_any", {}),
        data.get("always", {}),
        {flavour: _recipe(name, data, flavour) for flavour in FLAVOURS},
    )


def _recipe(name: str, data: Any, flavour: str) -> Recipe:
    part = data[flavour]
    return Recipe(
        f"{name}-{flavour}",
        requirements=(*data["packages"], *part["packages"]),
        indexes=tuple(part.get("indexes", ())),
        flavour=flavour,
        variables={**data.get("variables", {}), **data.get("always", {})},
    )


def _has(packages: Mapping[str, str], name: str, least: Version) -> bool:
    versions = [packages[known] for known in (name, *_STANDS_FOR.get(name, ())) if known in packages]
    return any(_version(text) >= least for text in versions)


def _version(text: str) -> Version:
    try:
        # A prerelease has what its release has.
        return Version(Version(text).base_version)
    except InvalidVersion:
        return Version("0")


def load_all() -> list[Curated]:
    return [load(name) for name in CURATED]
