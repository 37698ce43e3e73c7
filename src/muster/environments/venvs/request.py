"""The messages between an agent and the process that builds an environment. Standard library only."""

from __future__ import annotations

from typing import Literal

from muster.environments.venvs.interpreters import Interpreter
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@wire
class Request:
    """The environment to build."""

    recipe: Recipe
    key: str
    base: Interpreter
    """The interpreter to build on."""
    root: str
    """The folder of built environments."""
    limit_bytes: int
    packed: str = ""
    """The file from another node to unpack; empty: build."""


@wire
class Doing:
    """The current step, in a few words."""

    text: str
    kind: Literal["doing"] = "doing"


@wire
class Finished:
    """The environment is ready."""

    key: str
    kind: Literal["finished"] = "finished"


@wire
class Failed:
    """It could not be built."""

    code: str
    message: str
    next: str
    lines: tuple[str, ...]
    kind: Literal["failed"] = "failed"


@wire
class WheelWanted:
    """Asks for a compiled wheel of this key, to be put into the folder."""

    key: str
    folder: str
    kind: Literal["wheel_wanted"] = "wheel_wanted"


@wire
class WheelMade:
    """A wheel was compiled, also for others."""

    key: str
    path: str
    kind: Literal["wheel_made"] = "wheel_made"


@wire
class WheelAnswer:
    """The answer to either."""

    found: bool


Answer = Doing | Finished | Failed | WheelWanted | WheelMade
