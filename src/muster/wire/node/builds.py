"""Environments that a node builds for runs that are still queued: orders and reports."""

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
"""Key in the header of a packed environment: the folder that it was built in, which its scripts name."""


@wire
class BuildOrder:
    """An environment to build on a node before any rank needs it there."""

    id: str
    """The id of this request: the same content may be requested again after a failure."""
    content: str
    """Equal for the same recipe on the same Python."""
    recipe: Recipe
    runs: tuple[str, ...]
    """The runs that wait for it."""
    python: str | None = field(default=None, metadata=OMIT)
    """The submitter's interpreter; None: the agent's own."""
    shared: bool = field(default=False, metadata=OMIT)
    """It is fetched from another node that has it, or packed for others."""
    own_cache: bool = field(default=False, metadata=OMIT)
    """As in an attempt's order."""


@wire
class BuildReport:
    """The body of `POST agents/NODE/builds`: it is ready, or why it cannot be built."""

    id: str
    environment: BuiltEnvironment | None = field(default=None, metadata=OMIT)
    refusal: Refusal | None = field(default=None, metadata=OMIT)
    log: str = field(default="", metadata=OMIT)
    """What the build printed; empty where nothing had to be built."""


@wire
class CompiledWheel:
    """A wheel that a node has compiled."""

    name: str
    """Of its file."""
    size: int
    sha256: str


@wire
class WheelClaim:
    """The answer to `POST agents/NODE/wheels/KEY`: what a node that needs a compiled wheel should do."""

    state: Literal["there", "compile", "wait"]
    """Fetch the existing one, compile it for all, or ask again: another node is compiling it."""
    wheel: CompiledWheel | None = field(default=None, metadata=OMIT)


@wire
class WheelReleased:
    """The answer to `DELETE agents/NODE/wheels/KEY`."""

    key: str


@wire
class PackedEnvironment:
    """An environment as one file, which nodes fetch from each other; the body of `PUT agents/NODE/environments/KEY`."""

    size: int
    sha256: str

    def __post_init__(self) -> None:
        check_range("size", self.size, 0)
        check_pattern("sha256", self.sha256, SHA256, "64 hexadecimal digits")


@wire
class EnvironmentClaim:
    """The answer to `POST agents/NODE/environments/KEY`: what a node that needs an environment should do."""

    state: Literal["there", "build", "wait"]
    """Fetch the one that other nodes have, build it for all, or ask again: another node is building it."""
    packed: PackedEnvironment | None = field(default=None, metadata=OMIT)


@wire
class EnvironmentReleased:
    """The answer to `DELETE agents/NODE/environments/KEY`."""

    key: str


@wire
class BuildHeard:
    """The answer to a report."""

    wanted: bool = True
    """A run was still waiting for it."""
