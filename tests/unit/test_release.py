"""Releases and tests are made of pinned packages, and what they are made of can be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.sbom import document, locked

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def wanted(lock: str) -> list[Requirement]:
    texts = [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"]["dev"] if lock == "dev" else [])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", ["base", "dev"])
def test_every_dependency_is_pinned_by_hashes(lock: str) -> None:
    packages = {re.sub(r"[-_.]+", "-", item["name"]): item for item in locked(ROOT / "locks" / f"{lock}.txt")}
    for requirement in wanted(lock):
        name = re.sub(r"[-_.]+", "-", requirement.name.lower())
        if name == PROJECT["name"]:
            continue
        assert name in packages, f"{name} is missing: `make lock`"
        assert requirement.specifier.contains(packages[name]["version"]), f"{name} is too old: `make lock`"
    assert all(item["sha256"] for item in packages.values())


def test_the_bill_of_materials_lists_everything_once() -> None:
    made = document()
    refs = [item["bom-ref"] for item in made["components"]]
    assert len(refs) == len(set(refs)) == len(locked())
    known = {*refs, made["metadata"]["component"]["bom-ref"]}
    assert {item["ref"] for item in made["dependencies"]} == known
    assert all(set(item["dependsOn"]) <= known for item in made["dependencies"])
    own = next(item for item in made["dependencies"] if item["ref"] == made["metadata"]["component"]["bom-ref"])
    assert len(own["dependsOn"]) == len(PROJECT["dependencies"])
