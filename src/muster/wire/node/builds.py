"""Environments that a node builds for runs that are still queued: what is asked for, and what came of it."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.environments import BuiltEnvironment
from muster.wire.message import check_pattern, check_range, wire
from muster.wire.node.recipes import Recipe
from muster.wire.verdicts import Refusal

SHA256 = re.compile("[0-9a-f]{64}")
PACKED_NAME = "environment.tar"
FOLDER_HEADER = "muster.folder"
"""In the head of a packed environment: the folder that it was built in, which its scripts name."""


@wire
class BuildOrder:
    """An environment that is wanted on a node before any rank needs it there."""

    id: str
    """Of this request: the same content may be asked for again after it has failed."""
    content: str
    """The same for the same recipe on the same Python."""
    recipe: Recipe
    runs: tuple[str, ...]
    """Who waits for it."""
    python: str | None = field(default=None, metadata=OMIT)
    """The interpreter of the one who submitted; None: the agent's own."""
    shared: bool = field(default=False, metadata=OMIT)
    """It is taken from another node that has it, or packed for others."""
    own_cache: bool = field(default=False, metadata=OMIT)
    """As that of an attempt's order."""


@wire
class BuildReport:
    """The body of `POST agents/NODE/builds`: it is there, or why it cannot be."""

    id: str
    environment: BuiltEnvironment | None = field(default=None, metadata=OMIT)
    refusal: Refusal | None = field(default=None, metadata=OMIT)
    log: str = field(default="", metadata=OMIT)
    """What the builder printed; empty where nothing had to be built."""


@wire
class CompiledWheel:
    """A wheel that a node has compiled."""

    name: str
    """Of its file."""
    size: int
    sha256: str


@wire
class WheelClaim:
    """The answer to `POST agents/NODE/wheels/KEY`: what a node does that needs a compiled wheel."""

    state: Literal["there", "compile", "wait"]
    """It takes the one that is there, compiles it for all, or asks again: another node compiles it."""
    wheel: CompiledWheel | None = field(default=None, metadata=OMIT)


@wire
class WheelReleased:
    """The answer to `DELETE agents/NODE/wheels/KEY`."""

    key: str


@wire
class PackedEnvironment:
    """An environment as one file, which nodes take from each other; the body of `PUT agents/NODE/environments/KEY`."""

    size: int
    sha256: str

    def __post_init__(self) -> None:
        check_range("size", self.size, 0)
        check_pattern("sha256", self.sha256, SHA256, "64 hexadecimal digits")


@wire
class EnvironmentClaim:
    """The answer to `POST agents/NODE/environments/KEY`: what a node does that needs an environment."""

    state: Literal["there", "build", "wait"]
    """It takes the one that other nodes have, builds it for all, or asks again: another node builds it."""
    packed: PackedEnvironment | None = field(default=None, metadata=OMIT)


@wire
class EnvironmentReleased:
    """The answer to `DELETE agents/NODE/environments/KEY`."""

    key: str


@wire
class BuildHeard:
    """The answer to a report."""

    wanted: bool = True
    """Somebody still waited for it."""
