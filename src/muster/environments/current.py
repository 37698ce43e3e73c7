"""What the Python that submits has installed: a curated environment that is there already need not be built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from muster.environments.venvs.recipe import normalised

PACKAGES = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "horovod",
    "mpi4py",
    "deepspeed",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "jax",
    "scikit-learn",
)
"""Everything that a curated environment's `needs` may name."""
_STANDS_FOR = {"tensorflow": ("tensorflow-cpu",), "lightning": ("pytorch-lightning",)}


def installed() -> dict[str, str]:
    """The versions of the frameworks in this Python."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def satisfies(packages: Mapping[str, str], needs: Mapping[str, str]) -> bool:
    """Whether every package that is needed is there, in at least its version."""
    return all(_has(packages, normalised(name), least) for name, least in needs.items())


def _has(packages: Mapping[str, str], name: str, least: str) -> bool:
    versions = [packages[known] for known in (name, *_STANDS_FOR.get(name, ())) if known in packages]
    return any(_numbers(version) >= _numbers(least) for version in versions)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()
