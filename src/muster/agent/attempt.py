"""One attempt on this node: its phase, and what an order means for it (decided purely)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster.agent.prepare.inputs import Inputs
from muster.agent.prepare.ports import HeldPort
from muster.agent.prepare.shares import Shares
from muster.agent.run.journal import Story
from muster.agent.run.mpi.find import Found
from muster.environments.caller import Ready, Used
from muster.host.locks import HeldLock
from muster.paths import AttemptPaths
from muster.wire.node.agents import AttemptKey, Facts, Order

ABANDONED = "abandoned"
"""The reason of a stop that only ends the delivery."""


class Phase(Enum):
    """Where an attempt stands on its node."""

    ORDERED = "ordered"
    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    """From the request for a keeper to the end of its last process."""
    ENDED = "ended"
    """No process is left; files and bytes are being delivered."""
    DELIVERED = "delivered"


class Step(Enum):
    """What to do next."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    STOP = "stop"
    END = "end"
    """Nothing runs and nothing will: report the end."""
    ABANDON = "abandon"
    """Its files are no longer wanted: give up delivering them."""
    REMOVE = "remove"


def next_step(order: Order, phase: Phase) -> Step | None:
    """The step towards what the order asks for; None when the attempt is there already."""
    if order.action == "forget":
        if phase is Phase.PREPARING:
            return None
        return Step.STOP if phase is Phase.RUNNING else Step.REMOVE
    if order.action == "stop":
        if phase is Phase.ENDED and order.stop_reason == ABANDONED:
            return Step.ABANDON
        if phase is Phase.RUNNING:
            return Step.STOP
        # While it prepares, its worker notices that it is no longer wanted.
        return Step.END if phase in (Phase.ORDERED, Phase.PREPARED) else None
    if phase is Phase.ORDERED:
        return Step.PREPARE
    if phase is Phase.PREPARED and order.plan is not None:
        return Step.LAUNCH
    return None


def may_leave(phases: set[Phase], *, asked: bool, long_lived: bool, had_any: bool) -> bool:
    """Whether the agent may exit, given its attempts' phases; a short-lived one also exits after its last attempt."""
    if long_lived:
        return asked and not phases
    # A delivered attempt may be left behind: nobody comes back to this folder.
    return (asked and phases <= {Phase.DELIVERED}) or (had_any and not phases)


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
    """The checkpoint that was restored."""
    resume: str | None = None
    """Its folder."""
    facts: Facts = field(default_factory=Facts)
    environment: Ready | None = None
    """The attempt's own environment, if it has one."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Shares of the cluster, by name."""
    mpi: Found | None = None
    """The mpirun of an MPI job."""

    @property
    def container(self) -> Used | None:
        """The image that the ranks run in."""
        return self.environment.container if self.environment else None


@dataclass
class Attempt:
    """What the agent's loop knows about an attempt."""

    order: Order
    paths: AttemptPaths
    phase: Phase = Phase.ORDERED
    prepared: PreparedAttempt | None = None
    story: Story = field(default_factory=Story)
    deadline: float | None = None
    """When the time limit passes, on the monotonic clock."""
    stopped_with: tuple[float, str] | None = None
    """Grace and reason of the last stop that was sent to the keeper."""
    shares: Shares | None = None
    inputs: Inputs | None = None
    """Its inputs, with locks on those in the cache."""
    environment: Ready | None = None
    """Its environment, once it is in place."""
    unwanted: threading.Event = field(default_factory=threading.Event)
    """Set when its workers should give up."""
    folder_lost: bool = False
    """Its folder was removed, and the server was told."""
    abandoned: bool = False
    """The delivery was cancelled: what the server does not have yet is reported as lost."""

    @property
    def key(self) -> AttemptKey:
        return self.order.key

    @property
    def reason(self) -> str:
        """Why it was stopped, if it was."""
        return self.stopped_with[1] if self.stopped_with else self.order.stop_reason

    @property
    def succeeded(self) -> bool:
        """Whether every rank of this node succeeded."""
        good = [rank.exit_code == 0 or rank.expected for rank in self.story.exited.values()]
        return bool(good) and all(good) and self.reason in ("", "done")

    @property
    def locks(self) -> list[HeldLock]:
        """The locks on its ports, environment and data; its keeper gets copies of the descriptors."""
        ports = self.prepared.ports if self.prepared else ()
        data = self.inputs.held if self.inputs else ()
        return [held.lock for held in (*ports, *((self.environment,) if self.environment else ()), *data)]

    def release(self) -> None:
        """Release ports, environment and data; a keeper has its own copies of the locks."""
        for lock in self.locks:
            lock.release()
        self.prepared = self.environment = None
        if self.inputs is not None:
            self.inputs.held.clear()
