"""What an agent and the process that builds an environment say to each other. Standard library only."""

from __future__ import annotations

from typing import Literal

from muster.environments.venvs.interpreters import Interpreter
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@wire
class Request:
    """What is wanted."""

    recipe: Recipe
    key: str
    base: Interpreter
    """What it is built on."""
    root: str
    """The folder of built environments."""
    limit_bytes: int
    packed: str = ""
    """It is unpacked from this file, which another node made; empty: it is built."""


@wire
class Doing:
    """What is being done, in a few words."""

    text: str
    kind: Literal["doing"] = "doing"


@wire
class Finished:
    """It is there."""

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
    """Is there a compiled wheel of this key? It is to be put into the folder."""

    key: str
    folder: str
    kind: Literal["wheel_wanted"] = "wheel_wanted"


@wire
class WheelMade:
    """One was compiled, for others too."""

    key: str
    path: str
    kind: Literal["wheel_made"] = "wheel_made"


@wire
class WheelAnswer:
    """What the builder hears to either."""

    found: bool


Answer = Doing | Finished | Failed | WheelWanted | WheelMade
