"""Environments: registered ones, what a run's is made of, and what nodes built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire
from muster.wire.node.containers import ImageSource
from muster.wire.node.recipes import Recipe


@wire
class NewEnvironment:
    """The body of `POST environments`."""

    name: str
    spec: Mapping[str, Json]
    """The content of a job file's `environment`."""


@wire
class EnvironmentView:
    """One version of a registered environment."""

    name: str
    version: int
    spec: Mapping[str, Json]
    created_at: float


@wire
class EnvironmentBrief:
    """A run's environment in short."""

    packages: int
    """How many; 0 until it is built."""
    name: str | None = field(default=None, metadata=OMIT)
    key: str | None = field(default=None, metadata=OMIT)
    python: str | None = field(default=None, metadata=OMIT)
    image: str | None = field(default=None, metadata=OMIT)


@wire
class BuiltEnvironment:
    """An environment as a node built it."""

    key: str
    """The key by which the node stores it."""
    python: str
    lock: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    """Every package with its version; None: nothing was installed on top of an image."""
    indexes: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    platform: str | None = field(default=None, metadata=OMIT)
    image: str | None = field(default=None, metadata=OMIT)
    engine: str | None = field(default=None, metadata=OMIT)
    """Which container engine has the image."""
    built_s: float | None = field(default=None, metadata=OMIT)
    """How long the build took; None: it was there already."""


@wire
class AgreedVersions:
    """Versions that all nodes of a gang use; all None until the first node has built."""

    python: str | None = field(default=None, metadata=OMIT)
    platform: str | None = field(default=None, metadata=OMIT)
    lock: tuple[str, ...] | None = field(default=None, metadata=OMIT)


@wire
class RunEnvironment:
    """A run's environment: its recipe, and the versions that the first node's build resolved."""

    name: str
    recipe: Recipe | None = field(default=None, metadata=OMIT)
    container: ImageSource | None = field(default=None, metadata=OMIT)
    key: str | None = field(default=None, metadata=OMIT)
    python: str | None = field(default=None, metadata=OMIT)
    platform: str | None = field(default=None, metadata=OMIT)
    lock: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    indexes: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    image: str | None = field(default=None, metadata=OMIT)
