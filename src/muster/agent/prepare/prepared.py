"""What preparation found and made for an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.agent.prepare.ports import HeldPort
from muster.agent.run.mpi.find import Found
from muster.environments.caller import Ready, Used
from muster.wire.node.agents import Facts


@dataclass(frozen=True)
class PreparedAttempt:
    """Everything that its ranks need on this node."""

    ports: tuple[HeldPort, ...]
    inputs: Mapping[str, str]
    """Where the job finds each."""
    outputs: Mapping[str, str]
    python: str
    python_bin: str
    tmp: str
    resumed: int | None = None
    """Which checkpoint was restored."""
    resume: str | None = None
    """Where it lies."""
    facts: Facts = field(default_factory=Facts)
    environment: Ready | None = None
    """What the ranks run in, where the attempt has an environment of its own."""
    mpi: Found | None = None
    """The mpirun of an MPI job."""

    @property
    def container(self) -> Used | None:
        """The image that the ranks run in."""
        return self.environment.container if self.environment else None
