"""The attempt that asks for its environment on this node, and what it gets. Standard library only."""

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
    """An attempt that its environment is made for, in a worker thread of the agent: what it is, how it is reached."""

    run: str
    attempt: int
    num_nodes: int
    python: str | None
    """The job's own interpreter; None: the agent's."""
    mark: str
    """Tells what belongs to this node's agent."""
    environ: Mapping[str, str]
    """What tools see; the mark is in it."""
    folder: Path
    """The attempt's own."""
    log: Path
    """Takes what tools print."""
    unwanted: threading.Event
    """Set once nobody wants the environment any more."""
    begins: Callable[[], None]
    """Called when something begins that takes long: from then on the log grows."""
    doing: Callable[[str], None]
    """Takes what is being done, in a few words; empty at the end."""
    note: Callable[[Level, str], None]
    """A line for those who follow the run."""
    agree: Callable[[BuiltEnvironment | None], AgreedVersions]
    """Reports to the server what this node came to, if anything yet; answers with what the gang keeps to."""
    unpack: Callable[[str, Path], None]
    """Copies the files of a snapshot to a folder."""
    wheels: Wheels = field(default_factory=NoWheels)
    """Compiled ones that the workspace's nodes share."""
    others: Others = field(default_factory=NoOthers)
    """Nodes that may have the environment, or want it."""
    environments: Path | None = None
    """Where it is kept; None: with the host's others."""

    @property
    def name(self) -> str:
        return f"{self.run}.{self.attempt}"


@dataclass(frozen=True)
class Used:
    """The image that an attempt runs in, once it is on its node."""

    engine: Engine
    container: Container
    image: str
    """What the engine starts: an id, or the file that apptainer made."""
    contents: Contents
    extra: tuple[str, ...] = ()
    """Arguments that this host's engine needs."""


@dataclass(frozen=True)
class Ready:
    """An environment that is in place."""

    python: str
    lock: HeldLock
    """Keeps it from being removed; goes along with the keeper."""
    built: BuiltEnvironment
    variables: Mapping[str, str] = field(default_factory=dict)
    container: Used | None = None
    """The image that the ranks run in."""
