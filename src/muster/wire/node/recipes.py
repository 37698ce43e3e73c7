"""Recipes of environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from muster.wire.codec import OMIT
from muster.wire.message import wire

UNNAMED = ("environment", "conda", "packages", "default")
"""What environments are called that got no name, each perhaps another."""


@wire
class Recipe:
    """A Python with packages."""

    label: str = "environment"
    """Its name for people; it does not affect the build."""
    requirements: tuple[str, ...] = field(default=(), metadata=OMIT)
    python: str | None = field(default=None, metadata=OMIT)
    """A version such as `3.11` or `>=3.9`, or an interpreter's path; None: that of the job."""
    options: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Lines of a requirements file that say where packages come from, such as `--index-url …`."""
    indexes: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Indexes that are added unless the site's own configuration names where packages come from."""
    channels: tuple[str, ...] = field(default=(), metadata=OMIT)
    conda: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Packages that only conda has."""
    constraints: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Versions that an earlier build resolved."""
    flavour: str = field(default="", metadata=OMIT)
    """`cpu` or `gpu` where that affects the build."""
    variables: Mapping[str, str] = field(default_factory=dict, metadata=OMIT)
    """Environment variables of ranks, unless the job sets them."""

    strict: bool = field(default=False, metadata=OMIT)
    """A version that does not exist for its Python fails the build; otherwise the nearest one is taken."""

    def locked(self, versions: Iterable[str]) -> Recipe:
        return replace(self, constraints=tuple(versions))
