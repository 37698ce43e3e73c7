"""The image that an attempt runs in, once it is on its node. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from muster.environments.images.command import Engine
from muster.environments.images.probe import Contents
from muster.wire.node.containers import Container


@dataclass(frozen=True)
class Used:
    engine: Engine
    container: Container
    image: str
    """What the engine starts: an id, or the file that apptainer made."""
    contents: Contents
    extra: tuple[str, ...] = ()
    """Arguments that this host's engine needs."""
