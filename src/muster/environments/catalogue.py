"""The curated environments: one file for each in `curated/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from muster.environments.names import CURATED
from muster.environments.venvs.recipe import Recipe


@dataclass(frozen=True)
class Curated:
    """A curated environment."""

    name: str
    description: str
    needs: Mapping[str, str]
    """What a Python must have, in at least these versions, to stand in for it."""
    content: Mapping[str, Any]

    def recipe(self, flavour: str) -> Recipe:
        part = self.content[flavour]
        return Recipe(
            f"{self.name}-{flavour}",
            requirements=(*self.content["packages"], *part["packages"]),
            indexes=tuple(part.get("indexes", ())),
            flavour=flavour,
            variables=dict(self.content.get("variables", {})),
        )


@cache
def load(name: str) -> Curated:
    """A curated environment by its name."""
    text = resources.files("muster.environments").joinpath("curated", f"{name}.yml").read_text()
    data = yaml.safe_load(text)
    return Curated(name, data["description"], data["needs"], data)


def load_all() -> list[Curated]:
    return [load(name) for name in CURATED]
