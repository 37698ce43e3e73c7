"""Environments that a node builds for runs that are still queued: what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.environments import BuiltEnvironment
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe
from muster.wire.verdicts import Refusal


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
class BuildHeard:
    """The answer to a report."""

    wanted: bool = True
    """Somebody still waited for it."""
