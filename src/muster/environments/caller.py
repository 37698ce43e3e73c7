"""The attempt that needs its environment on this node, and the result that it gets. Standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.environments.images.command import Engine
from muster.environments.images.probe import Contents
from muster.environments.venvs.others import NoOthers, Others
from muster.environments.venvs.wheels import NoWheels, Wheels
from muster.host.locks import HeldLock
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.containers import Container
from muster.wire.states import Level


@dataclass(frozen=True)
class Caller:
    """The attempt for which a worker thread of the agent prepares an environment, and the ways to reach it."""

    run: str
    attempt: int
    num_nodes: int
    python: str | None
    """The job's own interpreter; None: the agent's."""
    mark: str
    """Identifies what belongs to this node's agent."""
    environ: Mapping[str, str]
    """The variables for tools; includes the mark."""
    folder: Path
    """The attempt's own folder."""
    log: Path
    """Receives the output of tools."""
    unwanted: threading.Event
    """Set once the environment is no longer needed."""
    begins: Callable[[], None]
    """Called when something long begins: from then on the log grows."""
    doing: Callable[[str], None]
    """Receives the current step, in a few words; empty at the end."""
    note: Callable[[Level, str], None]
    """Writes a line for those who follow the run."""
    agree: Callable[[BuiltEnvironment | None], AgreedVersions]
    """Reports this node's versions to the server, if there are any yet; returns the gang's versions."""
    unpack: Callable[[str, Path], None]
    """Copies the files of a snapshot to a folder."""
    wheels: Wheels = field(default_factory=NoWheels)
    """Compiled wheels that the workspace's nodes share."""
    others: Others = field(default_factory=NoOthers)
    """Nodes that may have the environment, or need it."""
    environments: Path | None = None
    """The folder for it; None: with the host's other environments."""

    @property
    def name(self) -> str:
        return f"{self.run}.{self.attempt}"


@dataclass(frozen=True)
class Used:
    """The image that an attempt runs in, on its node."""

    engine: Engine
    container: Container
    image: str
    """What the engine starts: an image id, or apptainer's file."""
    contents: Contents
    extra: tuple[str, ...] = ()
    """Arguments that this host's engine needs."""


@dataclass(frozen=True)
class Ready:
    """An environment that is in place."""

    python: str
    lock: HeldLock
    """Keeps it from being removed; passed on to the keeper."""
    built: BuiltEnvironment
    variables: Mapping[str, str] = field(default_factory=dict)
    container: Used | None = None
    """The image that the ranks run in."""
